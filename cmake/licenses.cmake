# QuickJS-ng's sources come without a file for their licence: it is the comment that opens each of
# them. This writes the holders that they name, the text, and the one of the Unicode tables.

# leading_comment(OUT FILE MARK): the text of FILE from MARK to the end of its comment.
function(leading_comment out file mark)
    file(READ "${file}" text LIMIT 8192)
    string(FIND "${text}" "${mark}" begin)
    if(begin LESS 0)
        message(FATAL_ERROR "${file} does not hold \"${mark}\" in its first lines: its licence has "
                "changed, and must be read anew")
    endif()
    string(SUBSTRING "${text}" ${begin} -1 text)
    string(FIND "${text}" "*/" end)
    string(SUBSTRING "${text}" 0 ${end} text)
    string(REGEX REPLACE "\n \\* ?" "\n" text "${text}")
    string(STRIP "${text}" text)
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

set(quickjs "${TEMPER_PARTS}/quickjs")
leading_comment(quickjs_license "${quickjs}/quickjs.c" "Permission is hereby granted")
leading_comment(unicode_license "${quickjs}/libunicode-table.h" "UNICODE LICENSE V3")

set(holders)
file(GLOB sources "${quickjs}/*.[ch]")
foreach(source ${sources})
    file(STRINGS "${source}" lines LIMIT_INPUT 4096 ENCODING UTF-8 REGEX "^ \\* Copyright \\(c\\)")
    list(APPEND holders ${lines})
endforeach()
list(REMOVE_DUPLICATES holders)
list(TRANSFORM holders REPLACE "^ \\* " "")
list(SORT holders)
list(JOIN holders "\n" holders)

file(WRITE "${temper_out}/quickjs-ng.txt" "QuickJS-ng\n\n${holders}\n\n${quickjs_license}\n\n\n"
     "Its Unicode tables\n\n${unicode_license}\n")
