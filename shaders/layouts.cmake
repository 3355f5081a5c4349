# cmake -D MODULES=... -D FOLDER=... -D LAYOUTS=... -P layouts.cmake: joins FOLDER/NAME.json of every module NAME that
# the file MODULES lists into one file, LAYOUTS.
file(STRINGS ${MODULES} modules)
set(layouts)
foreach(module ${modules})
  file(READ ${FOLDER}/${module}.json layout)
  list(APPEND layouts "\"${module}\": ${layout}")
endforeach()
list(JOIN layouts ",\n" layouts)
file(WRITE ${LAYOUTS} "{\n${layouts}\n}\n")
