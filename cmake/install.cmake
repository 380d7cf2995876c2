# What `cmake --install` puts where, and the libraries that only others link.
#
#     bin/temper                      the program
#     include/temper/temper.h         the interface
#     LIB/libtemper.so*, libtemper.a  the library: both export the functions of temper.h and no more
#     LIB/temper/                     the WebGPU library, found by paths relative to what loads it
#     LIB/pkgconfig, LIB/cmake/temper for those who build against it
#     share/                          man page, bash completion, licences
#
# No path in any of them is absolute, so that an installed tree can be moved.

foreach(folder BINDIR LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
        message(FATAL_ERROR "CMAKE_INSTALL_${folder} is ${CMAKE_INSTALL_${folder}}: "
                "name it relative to CMAKE_INSTALL_PREFIX")
    endif()
endforeach()

set(temper_private "${CMAKE_INSTALL_LIBDIR}/temper")
set(temper_out "${CMAKE_BINARY_DIR}/install")
set(temper_doc "${CMAKE_INSTALL_DATAROOTDIR}/doc/temper")

# ---- the WebGPU library -----------------------------------------------------------------------------

# It is installed under the name that the loader asks for: its soname, else its file's name.
get_target_property(temper_webgpu_file part_webgpu IMPORTED_LOCATION)
get_filename_component(temper_webgpu_file "${temper_webgpu_file}" REALPATH)
get_filename_component(temper_webgpu_name "${temper_webgpu_file}" NAME)
set(temper_webgpu_soname "IMPORTED_NO_SONAME ON")
if(CMAKE_READELF)
    execute_process(COMMAND "${CMAKE_READELF}" -d "${temper_webgpu_file}"
                    OUTPUT_VARIABLE dynamic ERROR_QUIET)
    if(dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]")
        set(temper_webgpu_name "${CMAKE_MATCH_1}")
        set(temper_webgpu_soname "IMPORTED_SONAME \"${temper_webgpu_name}\"")
    endif()
endif()
install(FILES "${temper_webgpu_file}" DESTINATION "${temper_private}"
        RENAME "${temper_webgpu_name}" COMPONENT runtime)

# ---- the libraries ----------------------------------------------------------------------------------

# While the major version is 0, every minor version may change the interface.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(temper_soversion "0.${PROJECT_VERSION_MINOR}")
    set(temper_compatibility SameMinorVersion)
else()
    set(temper_soversion "${PROJECT_VERSION_MAJOR}")
    set(temper_compatibility SameMajorVersion)
endif()

if(APPLE)
    set(origin "@loader_path")
else()
    set(origin "$ORIGIN")
endif()
set(temper_elf FALSE)
if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    set(temper_elf TRUE)
endif()

add_library(temper_shared SHARED ${temper_objects})
target_link_libraries(temper_shared PRIVATE ${temper_links})
set_target_properties(temper_shared PROPERTIES
    OUTPUT_NAME temper LINKER_LANGUAGE C VERSION "${PROJECT_VERSION}"
    SOVERSION "${temper_soversion}" LIBRARY_OUTPUT_DIRECTORY "${temper_out}"
    INSTALL_RPATH "${origin}/temper")
if(temper_elf)
    set(map "${CMAKE_SOURCE_DIR}/cmake/temper.map")
    target_link_options(temper_shared PRIVATE "LINKER:--version-script=${map}" "LINKER:-z,defs")
    set_target_properties(temper_shared PROPERTIES LINK_DEPENDS "${map}")
endif()

# The static library is one object, in which only the interface is still global: names such as
# gguf_open or JS_NewContext cannot meet those of the program that links it.
set(archive_parts ${temper_objects})
if(temper_elf AND CMAKE_OBJCOPY)
    set(archive_parts "${temper_out}/libtemper.o")
    add_custom_command(
        OUTPUT "${archive_parts}"
        COMMAND "${CMAKE_LINKER}" -r -o "${archive_parts}" ${temper_objects}
        COMMAND "${CMAKE_OBJCOPY}" --wildcard "--keep-global-symbol=temper_*" --localize-hidden
                "${archive_parts}"
        DEPENDS ${temper_objects}
        COMMENT "Hiding what is internal in libtemper.a" COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties("${archive_parts}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endif()
add_library(temper_archive STATIC ${archive_parts})
set_target_properties(temper_archive PROPERTIES
    OUTPUT_NAME temper LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY "${temper_out}")

install(TARGETS temper_shared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
        NAMELINK_COMPONENT development)
install(TARGETS temper_archive ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(FILES include/temper/temper.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/temper"
        COMPONENT development)

# ---- the program ------------------------------------------------------------------------------------

file(RELATIVE_PATH to_private "/${CMAKE_INSTALL_BINDIR}" "/${temper_private}")
set_target_properties(temper_cli PROPERTIES INSTALL_RPATH "${origin}/${to_private}")
install(TARGETS temper_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
install(FILES cmake/temper.bash DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions"
        RENAME temper COMPONENT runtime)

# The man page is made of what the program says of itself.
if(CMAKE_CROSSCOMPILING)
    message(STATUS "No man page: it is made by running the program")
else()
    set(man "${CMAKE_SOURCE_DIR}/doc/man")
    set(page "${temper_out}/temper.1")
    add_custom_command(
        OUTPUT "${page}"
        COMMAND sh "${man}/make.sh" $<TARGET_FILE:temper_cli> "${man}/temper.1.in" "${page}"
        DEPENDS temper_cli "${man}/make.sh" "${man}/help.awk" "${man}/temper.1.in"
        COMMENT "--help to man page" VERBATIM)
    add_custom_target(temper_man ALL DEPENDS "${page}")
    install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT runtime)
endif()

# ---- for those who build against it -----------------------------------------------------------------

# What the static library needs beside it; CMakeLists.txt asks for the same versions.
set(temper_cmake_requires "libpcre2-8>=10.40 libutf8proc>=2.6 jansson>=2.13")
string(REPLACE " " ", " temper_pc_requires "${temper_cmake_requires}")
string(REPLACE ">=" " >= " temper_pc_requires "${temper_pc_requires}")

set(temper_shared_name "${CMAKE_SHARED_LIBRARY_PREFIX}temper${CMAKE_SHARED_LIBRARY_SUFFIX}")
set(temper_shared_soname "${temper_shared_name}.${temper_soversion}")
set(temper_shared_name "${temper_shared_name}.${PROJECT_VERSION}")

file(RELATIVE_PATH temper_up_from_pkgconfig "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" temper_up_from_pkgconfig "${temper_up_from_pkgconfig}")
configure_file(cmake/temper.pc.in "${temper_out}/temper.pc" @ONLY)
install(FILES "${temper_out}/temper.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT development)

include(CMakePackageConfigHelpers)
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/temper")
configure_package_config_file(cmake/temper-config.cmake.in "${temper_out}/temper-config.cmake"
    INSTALL_DESTINATION "${package}" PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${temper_out}/temper-config-version.cmake"
    COMPATIBILITY "${temper_compatibility}")
install(FILES "${temper_out}/temper-config.cmake" "${temper_out}/temper-config-version.cmake"
        DESTINATION "${package}" COMPONENT development)

# ---- licences ---------------------------------------------------------------------------------------

include(cmake/licenses.cmake)
if(TEMPER_WEBGPU STREQUAL "dawn")
    # Dawn's text covers all that is linked into it; the second is of those who built the library.
    install(FILES "${TEMPER_PARTS}/dawn/LICENSE" DESTINATION "${temper_doc}/licenses"
            RENAME dawn.txt COMPONENT runtime)
    install(FILES "${TEMPER_PARTS}/dawn/LICENSE.rillfacet" DESTINATION "${temper_doc}/licenses"
            RENAME dawn-build.txt COMPONENT runtime)
    set(temper_webgpu_licenses "dawn.txt dawn-build.txt")
    set(temper_webgpu_copyright
        "Copyright: 2017-2026 The Dawn & Tint Authors, and those of the parts linked into it
License: BSD-3-Clause and Apache-2.0
 See licenses/dawn.txt, and licenses/dawn-build.txt of those who built it, in this folder.")
else()
    install(FILES cmake/wgpu-native.txt cmake/apache-2.0.txt
            DESTINATION "${temper_doc}/licenses" COMPONENT runtime)
    install(FILES "${TEMPER_PARTS}/wgpu-native/LICENSE.wgpu-py" DESTINATION "${temper_doc}/licenses"
            RENAME wgpu-native-build.txt COMPONENT runtime)
    set(temper_webgpu_licenses "wgpu-native.txt wgpu-native-build.txt apache-2.0.txt")
    set(temper_webgpu_copyright
        "Copyright: 2021-2026 The gfx-rs developers, and those of the parts linked into it
License: MIT, Apache-2.0 and BSD-3-Clause
 See licenses/wgpu-native.txt and licenses/apache-2.0.txt, and licenses/wgpu-native-build.txt of
 those who built it, in this folder.")
endif()
configure_file(cmake/copyright.in "${temper_out}/copyright" @ONLY)
install(FILES LICENSE THIRD_PARTY.md "${temper_out}/copyright" DESTINATION "${temper_doc}"
        COMPONENT runtime)
install(FILES "${temper_out}/quickjs-ng.txt" DESTINATION "${temper_doc}/licenses" COMPONENT runtime)
install(FILES "${TEMPER_PARTS}/jinja/LICENSE" DESTINATION "${temper_doc}/licenses"
        RENAME huggingface-jinja.txt COMPONENT runtime)
install(FILES cmake/ggml.txt DESTINATION "${temper_doc}/licenses" COMPONENT runtime)

include(cmake/package.cmake)
