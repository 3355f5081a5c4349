// Specialization constants, the same for every kernel: `Constants` in plan.py, field by field.
// clang-format off: a table
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;  // of an element: UINT, INT or FLOAT
#ifdef POOLING  // has neither; known when it is compiled, as below
const bool MINIMUM = false, LAST = false;
#else
layout(constant_id = 2) const bool MINIMUM = false;  // look for the minimum, not the maximum
layout(constant_id = 3) const bool LAST = false;     // of equal elements take the last, not the first
#endif
#ifdef IN_PLACE  // known when it is compiled: SwiftShader runs what is behind a constant's branch, too
const bool SEGMENTED = false, RECORDS = false;
#else
layout(constant_id = 4) const bool SEGMENTED = false;  // elements outside the bound segment are left out
layout(constant_id = 5) const bool RECORDS = false;  // write records for combine.comp, not the outputs
#endif
layout(constant_id = 6) const uint INDEX_WORDS = 1;  // of an index output; 0 writes none
layout(constant_id = 7) const bool VALUES = false;   // write the elements themselves
layout(constant_id = 8) const bool ALIGNED = false;  // blocks of 16 bytes begin at multiples of 16 bytes
layout(constant_id = 9) const bool SHORT = false;    // an output has so few elements that chunks of blocks do not pay
// windows.comp: a window is small enough to be unrolled.
layout(constant_id = 10) const uint WINDOW_DEPTH = 1;
layout(constant_id = 11) const uint WINDOW_HEIGHT = 1;
layout(constant_id = 12) const uint WINDOW_WIDTH = 1;
layout(constant_id = 13) const uint STRIDE_WIDTH = 1;
layout(constant_id = 14) const uint DILATION_WIDTH = 1;
layout(constant_id = 15) const uint ROWS = 1;          // of the ring
layout(constant_id = 16) const uint ROW_STEP = 1;      // rows of the ring from one row of a window to the next
layout(constant_id = 17) const uint PHASE = 0;         // where in a block every run's windows begin, if ALIGNED
layout(constant_id = 18) const bool WHOLE_RUNS = false;  // a row of outputs is a number of whole runs
layout(constant_id = 19) const uint LANES = 1;         // lanes.comp: invocations that share an output, a power of 2
layout(constant_id = 20) const uint BUNDLE = 1;        // items.glsl: invocations that work on neighbouring items
layout(constant_id = 21) const bool FLAT = false;      // outputs (columns.comp: rows of them) begin at one stride
// clang-format on

const uint UINT = 0, INT = 1, FLOAT = 2;
