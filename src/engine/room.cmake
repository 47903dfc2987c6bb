# Multiplications and additions are never fused, so that a draw is the same on machines with and without such instructions.
# The kernels get -O3, because -O2 of g++ 12 vectorises only loops whose cost it is sure of, which these are not, and may
# compute both sides of a choice: no code reads the floating-point exception flags, the only difference.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/engine/sampler.cpp PROPERTIES COMPILE_OPTIONS "-ffp-contract=off")
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/engine/sampler_kernels.cpp PROPERTIES
                            COMPILE_OPTIONS "-ffp-contract=off;-fno-trapping-math;$<$<CONFIG:Release>:-O3>")
# Its structs are the C interface's own and hold this file's types: a warning where other files are compiled with it.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/engine/c_api.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
