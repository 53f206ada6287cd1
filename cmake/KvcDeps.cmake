# SPDX-License-Identifier: Apache-2.0
# Foreign libraries, each as an imported target PkgConfig::<NAME>. Only the files of one adapter per
# layer include a library's header (tests/gates/lint.sh lists them), and only their layer links it.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# kvc_dep(<NAME> <pkg-config module> <Debian package>)
function(kvc_dep name module package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR
      "pkg-config does not know '${module}'. On Debian: apt-get install ${package} "
      "(or run sh tests/deps.sh, which installs all of them).")
  endif()
endfunction()

kvc_dep(URING liburing liburing-dev)
kvc_dep(ZMQ libzmq libzmq3-dev)
kvc_dep(MSGPACK msgpack libmsgpack-dev)
kvc_dep(HWLOC hwloc libhwloc-dev)
kvc_dep(LMDB lmdb liblmdb-dev)
kvc_dep(SYSTEMD libsystemd libsystemd-dev)
kvc_dep(MICROHTTPD libmicrohttpd libmicrohttpd-dev)
kvc_dep(XXHASH libxxhash libxxhash-dev)
kvc_dep(CRYPTO libcrypto libssl-dev)
kvc_dep(YAML yaml-0.1 libyaml-dev)
kvc_dep(JANSSON jansson libjansson-dev)
if(KVC_TESTS)
  kvc_dep(CHECK check check)
endif()
