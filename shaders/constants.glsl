// Specialization constants, the same for every kernel: `Constants` in plan.py, field by field.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;  // of an element: UINT, INT or FLOAT
layout(constant_id = 2) const bool MINIMUM = false;  // look for the minimum, not the maximum
layout(constant_id = 3) const bool LAST = false;     // of equal elements take the last, not the first
layout(constant_id = 4) const bool SEGMENTED = false;  // elements outside the bound segment are left out
layout(constant_id = 5) const bool RECORDS = false;  // write records for combine.comp, not the outputs
layout(constant_id = 6) const uint INDEX_WORDS = 1;  // of an index output; 0 writes none
layout(constant_id = 7) const bool VALUES = false;   // write the elements themselves

const uint UINT = 0, INT = 1, FLOAT = 2;
