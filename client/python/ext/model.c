/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and their sizes from a config.json, as kvcachectl reads it. */
#include <errno.h>
#include <string.h>

#include "kv_model.h"
#include "kvcpy.h"

static const char *const kinds[KV_KINDS] = {
    [KV_FULL] = "full",  [KV_SLIDING] = "sliding", [KV_STATE] = "state",
    [KV_NONE] = "plain", [KV_SHARED] = "shared",
};

/* Makes a str of a message, which may have been cut inside of a character. */
static PyObject *text_from(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *model_refused(int rc, const char *why, const char *inside)
{
    PyObject *text = text_from(why);
    PyObject *values = text != NULL ? Py_BuildValue("(iOs)", rc, text, inside) : NULL;
    if (values != NULL)
        PyErr_SetObject(PyExc_ValueError, values);
    Py_XDECREF(values);
    Py_XDECREF(text);
    return NULL;
}

/* ((kind, window, KV heads, elements of a key, of a value, bytes beside), ...) */
static PyObject *layers_to(const struct kv_model *m)
{
    PyObject *layers = PyTuple_New((Py_ssize_t)m->layers);
    for (uint32_t i = 0; layers != NULL && i < m->layers; i++) {
        const struct kv_layer *l = &m->layer[i];
        PyObject *one = Py_BuildValue("sIIIII", kinds[l->kind], l->window, l->kv_heads, l->key,
                                      l->value, l->side);
        if (one == NULL || PyTuple_SetItem(layers, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(layers);
    }
    return layers;
}

static PyObject *model_to(const struct kv_model *m)
{
    PyObject *layers = layers_to(m);
    PyObject *name = layers != NULL ? text_from(m->name) : NULL;
    PyObject *made = NULL;
    if (name != NULL)
        made = Py_BuildValue("OOIIsss", name, layers, m->latent, m->rope, m->dtype, m->stated,
                             m->inside);
    Py_XDECREF(name);
    Py_XDECREF(layers);
    return made;
}

/* (text of a config.json, name for messages) -> (model_type, layers, elements of a latent, of its
 * rotary key, dtype of KV, key that states it, place of the text model). Raises ValueError(rc, why,
 * place of the text model) if kv_model_read() fails. */
PyObject *model_read(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer text;
    const char *name;
    char why[KV_WHY_BYTES] = "";
    if (!PyArg_ParseTuple(args, "y*s", &text, &name))
        return NULL;
    PyObject *made = NULL;
    struct kv_model *m = PyMem_Malloc(sizeof(*m));
    int rc = m != NULL ? kv_model_read(name, text.buf, (size_t)text.len, why, m) : -ENOMEM;
    if (rc == 0)
        made = model_to(m);
    else if (rc == -ENOMEM)
        PyErr_NoMemory();
    else
        model_refused(rc, why, rc == -EBADMSG ? "" : m->inside);
    PyMem_Free(m);
    PyBuffer_Release(&text);
    return made;
}
