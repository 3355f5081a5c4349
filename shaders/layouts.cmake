# cmake -D MODULES=... -D FOLDER=... -D LAYOUTS=... -P layouts.cmake: puts the layouts in FOLDER of all that MODULES lists
# into one file.
file(STRINGS ${MODULES} modules)
set(layouts)
foreach(module ${modules})
  file(READ ${FOLDER}/${module}.json layout)
  list(APPEND layouts "\"${module}\": ${layout}")
endforeach()
list(JOIN layouts ",\n" layouts)
file(WRITE ${LAYOUTS} "{\n${layouts}\n}\n")
