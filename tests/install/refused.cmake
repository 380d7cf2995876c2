# Another minor version may have another interface, so it is refused: cmake -P, with -D temper_DIR.
set(folder "${temper_DIR}")
foreach(version 0.0 0.2 1.0)
    set(temper_DIR "${folder}")
    find_package(temper ${version} QUIET CONFIG)
    if(temper_FOUND OR NOT temper_CONSIDERED_VERSIONS)
        message(FATAL_ERROR "temper ${version} is not refused: \"${temper_CONSIDERED_VERSIONS}\"")
    endif()
endforeach()
