// Specialization constants that all kernels have. Numbers 8 and 9 are the accumulator's, those from 10 on the kernel's own.
// clang-format off: a table
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;  // of an element: UINT, INT or FLOAT
layout(constant_id = 2) const uint BUNDLE = 1;       // items.glsl: invocations that work on neighbouring items
#ifdef IN_PLACE  // known when it is compiled: SwiftShader runs what is behind a constant's branch, too
const bool SEGMENTED = false, RECORDS = false;
#else
layout(constant_id = 3) const bool SEGMENTED = false;  // elements outside the bound segment are left out
layout(constant_id = 4) const bool RECORDS = false;    // write records for combine.comp, not the outputs
#endif
layout(constant_id = 5) const uint INDEX_WORDS = 1;  // of an index output; 0 writes none
layout(constant_id = 6) const bool VALUES = false;   // write values
layout(constant_id = 7) const bool ALIGNED = false;  // blocks of 16 bytes begin at multiples of 16 bytes
// clang-format on

const uint UINT = 0, INT = 1, FLOAT = 2;
