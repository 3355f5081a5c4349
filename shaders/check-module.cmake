# cmake -D SPIRV_DIS=... -D MODULE=... -P check-module.cmake: fails unless
# - Shader is MODULE's only capability, the one that every Vulkan device has without asking for a feature;
# - drivers have to compute all its arithmetic of floats as it stands there: an addition that is left out, or fused with a
#   multiplication, makes sums wrong. `precise` in GLSL is NoContraction here.
execute_process(COMMAND ${SPIRV_DIS} --raw-id ${MODULE} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(name ${MODULE} NAME)

string(REGEX MATCHALL "OpCapability [A-Za-z0-9]+" capabilities "${text}")
list(REMOVE_DUPLICATES capabilities)
if(NOT capabilities STREQUAL "OpCapability Shader")
  message(FATAL_ERROR "${name} must declare OpCapability Shader and nothing else; it declares: ${capabilities}")
endif()

string(REGEX MATCHALL "OpDecorate %[0-9]+ NoContraction" precise "${text}")
list(TRANSFORM precise REPLACE ".*(%[0-9]+).*" "\\1")
string(REGEX MATCHALL "%[0-9]+ = Op(FAdd|FSub|FMul|FDiv|VectorTimesScalar|Dot) " arithmetic "${text}")
list(TRANSFORM arithmetic REPLACE " .*" "")
list(REMOVE_ITEM arithmetic ${precise})
string(REGEX MATCHALL "%[0-9]+ = OpExtInst %[0-9]+ %[0-9]+ Fma " fused "${text}")
list(LENGTH arithmetic arithmetic_count)
list(LENGTH fused fused_count)
if(arithmetic OR fused)
  message(FATAL_ERROR "${name} must have NoContraction on all arithmetic of floats, and no Fma; ${arithmetic_count} "
    "instructions have none, and ${fused_count} are Fma. Either GLSL lacks `precise`, or spirv-opt lost it")
endif()
