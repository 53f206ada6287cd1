/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into every program of the coverage build: _exit(), _Exit() and abort() skip the exit
 * handlers, and with them the counts of the process, so each writes them first. What a signal or
 * libkvcache.so takes along in such an end is lost.
 */
void __gcov_dump(void);

_Noreturn void __real__exit(int status);
_Noreturn void __real__Exit(int status);
_Noreturn void __real_abort(void);
_Noreturn void __wrap__exit(int status);
_Noreturn void __wrap__Exit(int status);
_Noreturn void __wrap_abort(void);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

void __wrap__Exit(int status)
{
    __gcov_dump();
    __real__Exit(status);
}

void __wrap_abort(void)
{
    __gcov_dump();
    __real_abort();
}
