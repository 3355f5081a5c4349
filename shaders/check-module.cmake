# cmake -D SPIRV_DIS=... -D MODULE=... -P check-capabilities.cmake: fails unless Shader is MODULE's only capability,
# the one that every Vulkan device has without asking for a feature.
execute_process(COMMAND ${SPIRV_DIS} ${MODULE} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "OpCapability [A-Za-z0-9]+" capabilities "${text}")
list(REMOVE_DUPLICATES capabilities)
if(NOT capabilities STREQUAL "OpCapability Shader")
  get_filename_component(name ${MODULE} NAME)
  message(FATAL_ERROR "${name} must declare OpCapability Shader and nothing else; it declares: ${capabilities}")
endif()
