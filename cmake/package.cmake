# Packages: `cpack -G DEB` makes temper (program, shared library, WebGPU library) and libtemper-dev,
# `cpack -G TGZ` one archive of everything, to be unpacked anywhere. Run it in the build folder.

set(TEMPER_PACKAGE_CONTACT "The temper authors" CACHE STRING "Maintainer of the packages made here")

set(CPACK_PACKAGE_NAME temper)
set(CPACK_PACKAGE_VENDOR temper)
set(CPACK_PACKAGE_CONTACT "${TEMPER_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language-model engine in C on WebGPU")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME temper)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
    "Runs decoder language models from GGUF files on any GPU that Vulkan reaches,
and on none: Mesa's software driver is enough. One program for generating,
measuring and inspecting, and the shared library behind it.")
# The libraries that are linked are found by dpkg-shlibdeps; the Vulkan loader is opened by name.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
get_filename_component(webgpu_folder "${temper_webgpu_file}" DIRECTORY)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${webgpu_folder}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libvulkan1")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "mesa-vulkan-drivers")

# Packages of programs that link libtemper.so learn from this file on what they depend.
file(WRITE "${temper_out}/shlibs"
     "libtemper ${temper_soversion} temper (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${temper_out}/shlibs")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtemper-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "Header, static library, pkg-config and CMake files for programs that use
libtemper.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "temper (= ${PROJECT_VERSION}), libpcre2-dev (>= 10.40), libutf8proc-dev (>= 2.6), libjansson-dev (>= 2.13)")

include(CPack)
