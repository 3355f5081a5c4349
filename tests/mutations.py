"""Single faults of the code that two tests at least must notice: `python -m tests.mutants` puts in one at a time.

Each is a slip that one could make. Those with a reason change nothing that a test could see; the reason says why.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    file: str
    pattern: str
    """What is replaced; it stands in the file exactly once."""
    replacement: str
    breaks: str
    unseen: str = ""
    """Why no test can see it."""


BEST = (
    Mutation(
        "shaders/best.glsl",
        "wins = SEGMENTED ? wins_or_first : wins;",
        "",
        "the first element of a segment wins only above a key that nobody set",
    ),
    Mutation(
        "shaders/best.glsl",
        "bool wins = LAST ? not_below : above;",
        "bool wins = above;",
        "DECREASING takes the first of equal elements where they are taken one by one",
    ),
    Mutation(
        "shaders/best.glsl",
        "(words)[(at) + 2] = (best).bits.y;",
        "(words)[(at) + 2] = (best).bits.x;",
        "a record of a 64-bit element has its low word twice",
    ),
    Mutation(
        "shaders/best.glsl",
        "uvec2((words)[(at) + 1], (words)[(at) + 2]), \\",
        "uvec2((words)[(at) + 1], (words)[(at) + 1]), \\",
        "the high word of a 64-bit element is lost where its record is read",
    ),
    Mutation(
        "shaders/best.glsl",
        "RECORD_WORDS = 1 + WORDS_PER_ELEMENT",
        "RECORD_WORDS = 2",
        "records of 64-bit elements overlap",
    ),
    Mutation(
        "shaders/best.glsl",
        "(words)[2 * (at) + 1] = 0;",
        "",
        "the high word of a 64-bit index keeps what was in memory",
    ),
)

ROW = (
    Mutation(
        "shaders/row.glsl",
        "uint at = min(next, end - BLOCK);",
        "uint at = next;",
        "a last, partial block reads on behind the row",
    ),
    Mutation(
        "shaders/row.glsl",
        "bool wins = LAST ? not_below : above;",
        "bool wins = above;",
        "DECREASING takes the first of equal elements in short rows",
    ),
    Mutation(
        "shaders/row.glsl",
        "uint next = begin + first * BLOCK;",
        "uint next = begin + first;",
        "lanes begin one element apart instead of one block",
    ),
)

VALUES = (
    Mutation(
        "shaders/values.glsl",
        "uvec2(bits.x, bits.y ^ SIGN)",
        "uvec2(bits.x ^ SIGN, bits.y)",
        "the sign of an INT64 is looked for in its low word",
    ),
    Mutation(
        "shaders/values.glsl",
        "return (a.y == b.y ? a.x : a.y) > (a.y == b.y ? b.x : b.y);",
        "return a.y > b.y;",
        "64-bit elements with equal high words are equal",
    ),
    Mutation(
        "shaders/values.glsl",
        "magnitude > INFINITY",
        "magnitude >= INFINITY",
        "infinity counts as NaN",
    ),
    Mutation(
        "shaders/values.glsl",
        "INFINITY = 0x7C00u",
        "INFINITY = 0x7C01u",
        "the least NaN of FLOAT16 counts as a number",
    ),
    Mutation(
        "shaders/values.glsl",
        "(magnitude ^ negative) - negative + SIGN",
        "(magnitude ^ negative) + SIGN",
        "-0 is below +0",
    ),
    Mutation(
        "shaders/values.glsl",
        "* BITS)) & MASK)",
        "* BITS)))",
        "neighbours in its word stay with an 8- or 16-bit element that is loaded alone",
    ),
)

BLOCKS = (
    Mutation(
        "shaders/blocks.glsl",
        "uvec4(low.yzw, last)",
        "uvec4(low.yzw, low.w)",
        "the last elements of an unaligned block of 8- or 16-bit elements are others",
    ),
    Mutation(
        "shaders/blocks.glsl",
        "shift == 0 ? low : ",
        "",
        "a block that begins with a word is mixed with the words behind it",
    ),
    Mutation(
        "shaders/blocks.glsl",
        "(at + BLOCK - 1) / ELEMENTS_PER_WORD",
        "(at + BLOCK) / ELEMENTS_PER_WORD",
        "the fifth word of an unaligned block is counted from the element behind it",
        "the word counts only where the block begins within one: then both elements lie in the same word",
    ),
)

ITEMS = (
    Mutation(
        "shaders/items.glsl",
        "bundle * each + min(bundle, more)",
        "bundle * each + more",
        "the first bundles leave out items that are nobody's",
    ),
    Mutation(
        "shaders/items.glsl",
        "(count + BUNDLE - 1) / BUNDLE",
        "count / BUNDLE",
        "a last turn of fewer items than a bundle is left out",
    ),
    Mutation(
        "shaders/items.glsl",
        "min(count, (first + taken) * BUNDLE)",
        "(first + taken) * BUNDLE",
        "invocations go on behind the last item",
    ),
)

REDUCTION = (
    Mutation(
        "shaders/reduction.glsl",
        "(reduced_end - reduced_begin - 1) / stretch_size + 1",
        "(reduced_end - reduced_begin) / stretch_size",
        "a last stretch that is shorter than the others is left out",
    ),
    Mutation(
        "shaders/reduction.glsl",
        "begin + min(reduced_end - begin, stretch_size)",
        "begin + stretch_size",
        "a last stretch reads on behind the last element",
    ),
    Mutation(
        "shaders/reduction.glsl",
        "(stretch * output_count + i) * RECORD_WORDS",
        "(i * stretch_count + stretch) * RECORD_WORDS",
        "records stand output by output instead of stretch by stretch",
    ),
    Mutation(
        "shaders/reduction.glsl",
        "STORE_INDEX(target, first_output + i + target_base",
        "STORE_INDEX(target, i + target_base",
        "a later range of outputs is written over the first one",
    ),
    Mutation(
        "shaders/reduction.glsl",
        "outer_stride = kept_rank == 0 ? 0 : push.stride[0];",
        "outer_stride = push.stride[0];",
        "the outermost stride is that of a reduced dimension where none is kept",
        "without kept dimensions there is one output, number 0, and 0 times any stride is 0",
    ),
)

REDUCE = (
    Mutation(
        "shaders/reduce.comp",
        "address - source_first < source_count",
        "address - source_first <= source_count",
        "the first element of the next segment counts, with what lies behind this one in memory",
    ),
    Mutation(
        "shaders/reduce.comp",
        "min(end, index - index % run + run)",
        "min(end, index + run)",
        "a stretch that begins within a run of the last dimension leads on past its end",
    ),
    Mutation(
        "shaders/reduce.comp",
        "run_end - index >= 4",
        "run_end - index >= 3",
        "three elements at the end of a run are read as four",
    ),
)

ROWS = (
    Mutation(
        "shaders/rows.comp",
        "address + min(chunk + i * BLOCK, last)",
        "address + chunk + i * BLOCK",
        "the last chunk of a row is read past the row's end",
    ),
    Mutation(
        "shaders/rows.comp",
        "most > INFINITY) || top > (SIGN | INFINITY);",
        "most > INFINITY);",
        "a NaN with the sign set is not seen in long rows",
    ),
    Mutation(
        "shaders/rows.comp",
        "top >= SIGN ? top : bottom",
        "top > SIGN ? top : bottom",
        "-0 is not the minimum of a long row of it and positive numbers",
    ),
    Mutation(
        "shaders/rows.comp",
        "LAST ? !is_above(best_key, key) : is_above(key, best_key)",
        "is_above(key, best_key)",
        "DECREASING takes the first chunk that holds the winner",
    ),
)

LANES = (
    Mutation(
        "shaders/lanes.comp",
        "barrier();  // what the other half wrote",
        "// what the other half wrote",
        "lanes read the bests of others before they are written",
    ),
    Mutation(
        "shaders/lanes.comp",
        "LAST ? index > best.index : index < best.index",
        "index < best.index",
        "DECREASING takes the first of equal elements in different lanes",
    ),
    Mutation(
        "shaders/lanes.comp",
        "step > 0; step /= 2",
        "step > 1; step /= 2",
        "the bests of the last two lanes are not combined",
    ),
    Mutation(
        "shaders/lanes.comp",
        "lane == 0 && first + here / LANES < items",
        "lane == 0",
        "invocations without an item write, too",
        "they repeat the last item, and write the same to the same place",
    ),
)

COLUMNS = (
    Mutation(
        "shaders/columns.comp",
        "min(owned, width - BLOCK)",
        "owned",
        "a last, partial block of columns takes columns of the next row",
    ),
    Mutation(
        "shaders/columns.comp",
        "column + k >= owned",
        "column + k > owned",
        "the first column of every block is not written",
    ),
    Mutation(
        "shaders/columns.comp",
        "Best(bits, bits, begin + place)",
        "Best(bits, bits, place)",
        "the indices of later stretches count from the begin of the stretch",
    ),
    Mutation(
        "shaders/columns.comp",
        "first_column + column + begin * step_size",
        "column + begin * step_size",
        "a part of a row of outputs reads the row's first columns",
    ),
)

WINDOWS = (
    Mutation(
        "shaders/windows.comp",
        "ALIGNED ? PHASE : shifted % BLOCK",
        "ALIGNED ? 0 : shifted % BLOCK",
        "where all spans begin at one place in a block, they are read from the block's begin",
    ),
    Mutation(
        "shaders/windows.comp",
        "uvec4(blocks[b].yzw, blocks[b + 1].x);",
        "uvec4(blocks[b].yzw, blocks[b].x);",
        "a span that is shifted by a word has a block's first word for its last",
    ),
    Mutation(
        "shaders/windows.comp",
        "<< 1) << (31 - shift)",
        ") << (32 - shift)",
        "a span that begins with a word is shifted by 32 bits, which is undefined",
    ),
    Mutation(
        "shaders/windows.comp",
        "inside[c] = left + c < size.z;",
        "inside[c] = left + c <= size.z;",
        "one element behind the row counts",
    ),
    Mutation(
        "shaders/windows.comp",
        "(outside + DILATION_WIDTH - 1) / DILATION_WIDTH * DILATION_WIDTH",
        "outside",
        "a window of least values that begins in the padding has the index of an element between its own",
    ),
    Mutation(
        "shaders/windows.comp",
        "uint fresh = ROWS;",
        "uint fresh = shared_fresh;",
        "the first output of a strip takes over rows that nobody left",
    ),
    Mutation(
        "shaders/windows.comp",
        "min(row + strip, (above_it + 1) * height)",
        "row + strip",
        "a last strip that is shorter goes on into the next slab",
    ),
    Mutation(
        "shaders/windows.comp",
        "b.index < a.index",
        "a.index < b.index",
        "of equal elements in two rows of a window the later wins",
    ),
    Mutation(
        "shaders/windows.comp",
        "ring[h * ROW_STEP * RUN + k]",
        "ring[h * RUN + k]",
        "dilated windows that share rows take neighbouring ones",
    ),
    Mutation(
        "shaders/windows.comp",
        "if (k < left_over)",
        "if (k <= left_over)",
        "one index too many is written at the end of a row",
    ),
    Mutation(
        "shaders/windows.comp",
        "y < size.y && z < size.x",
        "y < size.y",
        "the padding behind a volume counts",
    ),
    Mutation(
        "shaders/windows.comp",
        "Best(0, NUMBER_KIND == INT ? SIGN : 0, NONE)",
        "Best(0, 0, NONE)",
        "a window of the least signed integers gives 0",
    ),
)

POOL = (
    Mutation(
        "shaders/pool.comp",
        "(padding - at - 1) / dilation[d] + 1",
        "(padding - at) / dilation[d] + 1",
        "a dilated window that meets the input's first element leaves it out",
    ),
    Mutation(
        "shaders/pool.comp",
        "last >= padding ?",
        "last > padding ?",
        "a window that ends with the input's first element is empty",
    ),
    Mutation(
        "shaders/pool.comp",
        "(z * size.y + y) * size.z",
        "(z * size.x + y) * size.z",
        "indices in a volume count planes of its depth",
    ),
    Mutation(
        "shaders/pool.comp",
        "word | values[at] & ~0u << ((k + 1) * BITS)",
        "word",
        "what lies behind the last output in its word becomes 0",
    ),
    Mutation(
        "shaders/pool.comp",
        "y += min(dilation.y, end.y - y)",
        "y += dilation.y",
        "a dilation leads on past 2^32, and back into the input",
    ),
    Mutation(
        "shaders/pool.comp",
        "address - source_base - source_first < source_count",
        "address - source_first < source_count",
        "which elements are bound is asked of places in the buffer",
    ),
)

COMBINE = (
    Mutation(
        "shaders/combine.comp",
        "later == LAST",
        "later",
        "of equal elements in two records the last wins, whatever the direction",
    ),
    Mutation(
        "shaders/combine.comp",
        "other.index != NONE && (wins || best.index == NONE)",
        "wins || best.index == NONE",
        "a record of no element takes part",
    ),
    Mutation(
        "shaders/combine.comp",
        "address - push.target_first >= push.target_count",
        "address - push.target_first > push.target_count",
        "the first output of the next segment is written behind this one",
    ),
    Mutation(
        "shaders/combine.comp",
        "atomicAnd(target[at / ELEMENTS_PER_WORD], ~(MASK << shift));",
        "",
        "an 8- or 16-bit value is mixed with what was there",
    ),
)

LOWERING = (
    Mutation(
        "dmlgpu/lowering/lower.py",
        "(begin // n + 1) * n",
        "(begin // n + 2) * n",
        "a range that is written in place leads on into the next segment of an output",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "bisect_left(ends, 2,",
        "bisect_left(ends, 3,",
        "a range of two pieces is written in place, from the first piece alone",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "record_words * records * (end - begin)",
        "record_words * (end - begin)",
        "there is memory for the records of one piece",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "records_bytes = max(records_bytes, 4",
        "records_bytes = max(0, 4",
        "there is memory for the records of the last range",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "records += piece.records",
        "records += 1",
        "the records of a piece are counted as one",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "target_base=wrapped(-segment * size)",
        "target_base=0",
        "later segments of a strided output are written past their ends",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "min(limits.records_bytes, limits.segment_bytes) // output_bytes",
        "limits.records_bytes // output_bytes",
        "records take more than a buffer has",
    ),
    Mutation(
        "dmlgpu/lowering/first_pass.py",
        "record * (end - begin) * self.record_words",
        "record * self.record_words",
        "the records of several pieces overlap",
    ),
    Mutation(
        "dmlgpu/lowering/first_pass.py",
        "wrapped(-(begin // size * size))",
        "wrapped(-begin)",
        "a range that begins within a segment of the output is written at the segment's begin",
    ),
    Mutation(
        "dmlgpu/lowering/first_pass.py",
        "1 + max(1, self.source.data_type.bits // 32)",
        "2",
        "there is memory for the records of 32-bit elements only",
    ),
    Mutation(
        "dmlgpu/lowering/first_pass.py",
        "GRANULE = 64",
        "GRANULE = 2",
        "ranges of 8-bit outputs begin within a word",
    ),
    Mutation(
        "dmlgpu/lowering/first_pass.py",
        "wrapped(segment * size - shift)",
        "wrapped(segment * size)",
        "later batch entries of a strided input are looked for elsewhere",
    ),
    Mutation(
        "dmlgpu/lowering/geometry.py",
        "(first, last) if together else (0, size - 1)",
        "(first, last)",
        "a range of outputs over several rows has the columns of its first and last output only",
    ),
)

ARG_PLANS = (
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "-(-stretch // self.block) * self.block",
        "stretch",
        "stretches are not whole blocks, where blocks are taken to be aligned",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "aligned=all(",
        "aligned=any(",
        "one aligned step counts for all",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "[piece.begin, piece.end, *(",
        "[piece.begin, *(",
        "rows that end with a partial block count as aligned",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "\n            + [dim.stride for dim in self.kept[:-1]]",
        "",
        "columns count as aligned wherever their rows of outputs begin",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "(last - high) // stride + 1",
        "(last - low) // stride + 1",
        "elements that lie in the segment for the first output count as there for all",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "-(-(first - high) // stride)",
        "-(-(first - low) // stride)",
        "elements are left out that lie in the segment for the last outputs only",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "return own if alone else max(own, any_layout)",
        "return own",
        "the slower kernel for several segments may pass the loop limit",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        "min(items // splits, self.short_outputs)",
        "items // splits",
        "a dispatch looks at more elements than the limit",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        " and end - begin >= self.block\n",
        "\n",
        "columns are taken for a part of a row that has less than a block",
    ),
    Mutation(
        "dmlgpu/lowering/reduction.py",
        '(2 if shader == "columns" else 1)',
        "2",
        "outputs along two kept dimensions are taken to stand at one stride",
    ),
)

POOLING_PLANS = (
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "(n - k for n, k in",
        "(n for n, k in",
        "the last part of a window goes on behind the window",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "start - first * stride) // dilation",
        "start - last * stride) // dilation",
        "parts of the first windows are left out that lie in the padding of the last one",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "[self.run * self.window_stride[2], *self.row_steps]",
        "[self.run * self.window_stride[2]]",
        "small windows count as aligned wherever rows begin",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "phase=-self.start_padding[2]",
        "phase=self.start_padding[2]",
        "padded small windows begin elsewhere in a block",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "[self.window_stride[2], self.start_padding[2], *self.row_steps]",
        "[self.window_stride[2], *self.row_steps]",
        "long windows count as aligned whatever their padding",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "return self.window_stride[1] if self.shares_rows else self.rows",
        "return 1 if self.shares_rows else self.rows",
        "windows that share rows go down one row, whatever their stride",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "            and self.output_size[2] % per_word == 0\n",
        "",
        "rows of small windows may share a word",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "            and max(self.window_end) <= MAX_ELEMENTS\n",
        "",
        "small windows that reach past 2^32 come back into the input",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "begin % self.unit == end % self.unit == 0",
        "begin % self.unit == 0",
        "small windows are taken for a range that ends within a row",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "shift=batch - plane * self.planes.stride",
        "shift=batch",
        "later batch entries at a stride of their own are read elsewhere",
    ),
    Mutation(
        "dmlgpu/lowering/pooling.py",
        "-(-self.output_size[1] // self.strip)",
        "(self.output_size[1] // self.strip)",
        "a last strip that is shorter is not counted, and invocations go round too often",
    ),
)

SCHEDULING = (
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "step.writes & writes or (step.writes & reads and not unseen)",
        "step.writes & writes",
        "a step overwrites what an earlier one may still read",
    ),
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "overwrites = step.writes & writes or ",
        "overwrites = ",
        "two steps of a submission write to the same place",
    ),
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "visible |= unseen",
        "visible = unseen",
        "only the barrier before the step is known to stand",
    ),
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "writes |= step.writes",
        "writes = set(step.writes)",
        "only the writes of the step before are waited for",
    ),
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "seconds + step.seconds > SUBMISSION_SECONDS",
        "step.seconds > SUBMISSION_SECONDS",
        "submissions are not cut where their steps take too long together",
    ),
    Mutation(
        "dmlgpu/runtime/schedule.py",
        "seconds > _MEASURED_SECONDS and all(pace.has_run for pace in paces)",
        "seconds > _MEASURED_SECONDS",
        "what compiling took counts as the pace of a pipeline",
    ),
    Mutation(
        "dmlgpu/runtime/kompute.py",
        "((device, 2 * size),)",
        "((device, size),)",
        "a staged buffer counts once in the heap that holds both of its copies",
    ),
    Mutation(
        "dmlgpu/runtime/kompute.py",
        "self._receipt.view[0] = 0",
        "pass",
        "the receipt of the submission before counts for this one",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "if self._shared and room > size",
        "if room > size",
        "slices share buffers that should be their own",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "(offset + size, room - size)",
        "(offset + size, room)",
        "the free rest of a buffer reaches past its end, or into the next slice",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "ALIGNMENT = 256",
        "ALIGNMENT = 4",
        "slices begin within a block of 16 bytes",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "if excess <= 0",
        "if excess < 0",
        "one empty buffer more than needed is destroyed",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "sorted(empty, key=lambda buffer: buffer.used)",
        "sorted(empty, key=lambda buffer: -buffer.used)",
        "the empty buffers that were used last are destroyed first",
    ),
)

CHECKS = (
    Mutation(
        "dmlgpu/runtime/engine.py",
        "a.offset < b.offset + b.size and b.offset < a.offset + a.size",
        "a.offset < b.offset + b.size",
        "tensors in one buffer count as sharing memory where one lies before the other",
    ),
    Mutation(
        "dmlgpu/runtime/compiled.py",
        "others.append((field, target))",
        "pass",
        "two outputs may be given the same memory",
    ),
    Mutation(
        "dmlgpu/runtime/compiled.py",
        "s.offset * 8 // b.unit_bits",
        "s.offset // 4",
        "a slice's place in its buffer is counted in words for every type",
    ),
    Mutation(
        "dmlgpu/runtime/compiled.py",
        "Role.OUTPUT if Role.OUTPUT in roles else Role.RECORDS",
        "Role.RECORDS if Role.RECORDS in roles else Role.OUTPUT",
        "the second of two passes counts as writing records and reading outputs",
    ),
    Mutation(
        "dmlgpu/runtime/engine.py",
        "(step, held) for step in steps",
        "(step, ()) for step in steps",
        "tensors that are dropped in a batch give their memory to others before they are read",
    ),
    Mutation(
        "dmlgpu/runtime/tuning.py",
        "info.max_storage_buffer_range, info.max_memory_allocation_size,",
        "info.max_storage_buffer_range,",
        "buffers may be larger than an allocation",
    ),
    Mutation(
        "dmlgpu/runtime/tuning.py",
        "return largest // ALIGNMENT * ALIGNMENT",
        "return largest",
        "segments are not whole blocks",
    ),
    Mutation(
        "dmlgpu/runtime/compiled.py",
        "(given.data_type, given.sizes, given.layout) != (desc.data_type, desc.sizes, desc.layout)",
        "(given.data_type, given.sizes) != (desc.data_type, desc.sizes)",
        "a tensor of other strides than the operator's is taken",
    ),
    Mutation(
        "dmlgpu/descriptors/tensor.py",
        "self.reach > MAX_ELEMENTS",
        "self.reach - 1 > MAX_ELEMENTS",
        "a strided tensor may reach one element too far",
    ),
    Mutation(
        "dmlgpu/descriptors/tensor.py",
        "min(limit, (target + rest) // stride)",
        "(target + rest) // stride",
        "strided tensors count as overlapping where elements outside them would",
    ),
    Mutation(
        "dmlgpu/descriptors/operator.py",
        "and tensor.overlaps",
        "and 0 in tensor.element_strides",
        "outputs whose elements overlap without a stride of 0 are taken",
    ),
    Mutation(
        "dmlgpu/descriptors/pooling.py",
        "begin % dilation >= size",
        "begin % dilation > size",
        "a window that steps over the whole input is taken",
    ),
    Mutation(
        "dmlgpu/descriptors/pooling.py",
        "max(behind, leading) < outputs",
        "max(behind, leading) < outputs - 1",
        "a last window that begins behind the input is taken",
    ),
    Mutation(
        "dmlgpu/descriptors/pooling.py",
        "given > outputs + 1",
        "given > outputs + 2",
        "two outputs more than fit are taken in ceiling mode",
    ),
    Mutation(
        "dmlgpu/descriptors/reduction.py",
        "> 2**31:",
        ">= 2**31:",
        "INT32 is refused for the indices 0 to 2^31 - 1, which it holds",
    ),
    Mutation(
        "dmlgpu/runtime/spirv.py",
        "len(sums) != len(found) or lines[-1]",
        "len(sums) != len(found)",
        "a list of checksums that was cut within a line is taken",
    ),
    Mutation(
        "dmlgpu/runtime/spirv.py",
        "not sums or len(sums) != len(found)",
        "not sums",
        "a damaged line in the list of checksums is passed over",
    ),
    Mutation(
        "dmlgpu/runtime/drivers.py",
        "len(matches) != 1",
        "not matches",
        "where several devices match, the first is taken",
    ),
    Mutation(
        "dmlgpu/runtime/drivers.py",
        "kind.propertyFlags & flags == flags",
        "kind.propertyFlags & flags",
        "memory with one of several properties that are needed is taken",
    ),
)

MUTATIONS = (
    *BEST,
    *ROW,
    *VALUES,
    *BLOCKS,
    *ITEMS,
    *REDUCTION,
    *REDUCE,
    *ROWS,
    *LANES,
    *COLUMNS,
    *WINDOWS,
    *POOL,
    *COMBINE,
    *LOWERING,
    *ARG_PLANS,
    *POOLING_PLANS,
    *SCHEDULING,
    *CHECKS,
)
