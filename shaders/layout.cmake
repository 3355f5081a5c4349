# cmake -D SPIRV_DIS=... -D MODULE=... -D LAYOUT=... -P layout.cmake: writes the names and places of MODULE's
# specialization constants and push constants to LAYOUT:
#   {"constants": {"group_size": 0, ...}, "push": {"size": [0, 8], "kept_rank": [16, 1], ...}}
# A specialization constant has its constant_id; a push constant has its first word and its number of words. MODULE must
# be glslang's output: spirv-opt drops what is not used.
execute_process(COMMAND ${SPIRV_DIS} --no-color ${MODULE} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)

set(constants)
string(REGEX MATCHALL "OpDecorate %[A-Z][A-Z0-9_]* SpecId [0-9]+" lines "${text}")
foreach(line ${lines})
  string(REGEX MATCH "%([A-Z0-9_]+) SpecId ([0-9]+)" line "${line}")
  string(TOLOWER ${CMAKE_MATCH_1} name)
  list(APPEND constants "\"${name}\": ${CMAKE_MATCH_2}")
endforeach()

string(REGEX MATCH "%Push = OpTypeStruct ([^\n]*)" line "${text}")
string(REPLACE " " ";" types "${CMAKE_MATCH_1}")
set(push)
foreach(type ${types})
  list(LENGTH push member)
  string(REGEX MATCH "OpMemberName %Push ${member} \"([a-z0-9_]+)\"" line "${text}")
  set(name ${CMAKE_MATCH_1})
  string(REGEX MATCH "OpMemberDecorate %Push ${member} Offset ([0-9]+)" line "${text}")
  math(EXPR first "${CMAKE_MATCH_1} / 4")
  set(words 1)
  if(type MATCHES "^%_arr_u?int_uint_([0-9]+)(_[0-9]+)?$")
    set(words ${CMAKE_MATCH_1})
  elseif(NOT type MATCHES "^%u?int$")
    message(FATAL_ERROR "${MODULE}: push constant ${name} is a ${type}; allowed are 32-bit integers and arrays of them")
  endif()
  list(APPEND push "\"${name}\": [${first}, ${words}]")
endforeach()

list(JOIN constants ", " constants)
list(JOIN push ", " push)
file(WRITE ${LAYOUT} "{\"constants\": {${constants}}, \"push\": {${push}}}")
