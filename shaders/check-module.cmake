# cmake -D SPIRV_DIS=... -D MODULE=... -P check-module.cmake: fails unless
# - MODULE's only capability is Shader, which every Vulkan device has without enabling a feature;
# - drivers must compute all its float arithmetic exactly as written: a driver that drops an addition, or fuses it with
#   a multiplication, makes sums wrong. `precise` in GLSL becomes NoContraction in SPIR-V.
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
