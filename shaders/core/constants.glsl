// Specialization constants of all kernels. The accumulator has the ids 8 and 9, the kernel has those from 10 on.
//
// Kernels copy most push constants to variables first: at every place where a shader reads a push constant, llvmpipe
// loads it for one invocation after the other.
//
// Push constants give a bound segment's first element, and the size of a full segment: the tensor's last segment may be
// shorter, but no address lies behind the tensor.

// The status buffer is bound to all kernels that bind fewer than four others; Vulkan promises four.

#ifndef NO_STATUS
layout(set = 0, binding = 0) buffer Status { uint status[]; };  // kompute.py reads it behind each submission
#endif
const uint ENDED_EARLY = 2;  // the bit that is set where a driver ended a loop early

// clang-format off: a table
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;  // of the elements: UINT, INT or FLOAT
layout(constant_id = 2) const uint BUNDLE = 1;       // items.glsl: invocations that work on neighbouring items
#ifdef IN_PLACE
const bool SEGMENTED = false, TO_STATES = false;
#else
layout(constant_id = 3) const bool SEGMENTED = false;  // skip elements outside the bound segment
layout(constant_id = 4) const bool TO_STATES = false;  // write states for combine.comp, not the outputs
#endif
layout(constant_id = 5) const uint INDEX_WORDS = 1;  // words of an index; 0: write no indices (gradients.glsl reads them)
layout(constant_id = 6) const bool VALUES = false;   // write values, that is, elements
layout(constant_id = 7) const bool ALIGNED = false;  // blocks that load_block() loads begin at multiples of 16 bytes
// clang-format on

const uint UINT = 0, INT = 1, FLOAT = 2;
