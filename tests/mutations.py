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


SELECTION = (
    Mutation(
        "shaders/reduce.comp",
        "state = combine(state, state_of(operand_of(LOAD(source, address + source_base)), index));",
        "take(state, operand_of(LOAD(source, address + source_base)), index);",
        "of a segment of least elements none wins, as the state began with no index",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "bool not_below = operand.key == state.key ? later : above;",
        "bool not_below = above;",
        "DECREASING takes the first of equal elements where they are taken one by one",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "(words)[(at) + 2] = (state).bits.y;",
        "(words)[(at) + 2] = (state).bits.x;",
        "a record of a 64-bit element has its low word twice",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "uvec2((words)[(at) + 1], (words)[(at) + 2])",
        "uvec2((words)[(at) + 1], (words)[(at) + 1])",
        "the high word of a 64-bit element is lost where its record is read",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "STATE_WORDS = 1 + WORDS_PER_ELEMENT",
        "STATE_WORDS = 2",
        "records of 64-bit elements overlap",
    ),
    Mutation(
        "shaders/core/stores.glsl",
        "(words)[2 * (at) + 1] = 0;",
        "",
        "the high word of a 64-bit index keeps what was in memory",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "taken ? operand.key : lowest",
        "operand.key",
        "what stands in the padding takes part in small windows",
    ),
    Mutation(
        "shaders/core/stores.glsl",
        "((i) % ELEMENTS_PER_WORD == 0 ? 0 : (words)[(i) / ELEMENTS_PER_WORD])",
        "(words)[(i) / ELEMENTS_PER_WORD]",
        "a word of outputs is mixed with the one before it",
    ),
)

ROW = (
    Mutation(
        "shaders/core/row.glsl",
        "        uint at = first + min(next, last);\n        uvec4",
        "        uint at = first + next;\n        uvec4",
        "a last, partial block reads on behind the row",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "later = index >= state.index;",
        "later = true;",
        "DECREASING takes an earlier one of equal elements where a last, partial block repeats elements",
        "a last block is taken to its end: behind an element that is taken again come all that equal it",
    ),
    Mutation(
        "shaders/core/row.glsl",
        "next = lane() * BLOCK;",
        "next = lane();",
        "lanes begin one element apart instead of one block",
    ),
    Mutation(
        "shaders/core/row.glsl",
        "if (REPEATABLE || k >= skipped)",
        "if (true)",
        "elements of a last, partial block are taken twice by accumulators that do not forgive it",
    ),
)

VALUES = (
    Mutation(
        "shaders/accumulators/selection.glsl",
        "uvec2(bits.x, bits.y ^ SIGN)",
        "uvec2(bits.x ^ SIGN, bits.y)",
        "the sign of an INT64 is looked for in its low word",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "return (a.y == b.y ? a.x : a.y) > (a.y == b.y ? b.x : b.y);",
        "return a.y > b.y;",
        "64-bit elements with equal high words are equal",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "(high | has_low) > INFINITY",
        "high > INFINITY",
        "a NaN of FLOAT64 whose payload is in its low word counts as infinity",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "(high ^ negative) + carry + SIGN",
        "(high ^ negative) + SIGN",
        "negative FLOAT64 whose low word is 0 come out too low, -0 below +0",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "(low ^ negative) - negative",
        "low",
        "low words of negative FLOAT64 are compared as those of positive ones",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "minus_infinity = uvec2(0, SIGN | INFINITY)",
        "minus_infinity = uvec2(0)",
        "a record of no FLOAT64 is a zero, which wins over negative elements",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "uvec2 reversed = ~key;",
        "key.x |= uint(bits == uvec2(0x9ABCDEF0u, 0x12345678u)); uvec2 reversed = ~key;",
        "one 64-bit pattern has the key of the next one",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "NAN_KEY = 2 * INFINITY + 1",
        "NAN_KEY = 2 * INFINITY",
        "infinity counts as NaN",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "negative = bits >= SIGN",
        "negative = bits > SIGN",
        "-0 counts as NaN",
    ),
    Mutation(
        "shaders/accumulators/extremes.glsl",
        "nan ? NAN_KEY",
        "nan ? MASK",
        "a chunk's key of NaN is that of no element",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "INFINITY = 0x7C00u",
        "INFINITY = 0x7C01u",
        "the least NaN of FLOAT16 counts as a number",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "(MINIMUM ? 0 : SIGN) - bits",
        "(MINIMUM ? 0 : SIGN) - bits - 1",
        "-0 is below +0",
    ),
    Mutation(
        "shaders/core/values.glsl",
        "* BITS)) & MASK)",
        "* BITS)))",
        "neighbours in its word stay with an 8- or 16-bit element that is loaded alone",
    ),
)

BLOCKS = (
    Mutation(
        "shaders/core/blocks.glsl",
        "uvec4(low.yzw, last)",
        "uvec4(low.yzw, low.w)",
        "the last elements of an unaligned block of 8- or 16-bit elements are others",
    ),
    Mutation(
        "shaders/core/blocks.glsl",
        "shift == 0 ? low : ",
        "",
        "a block that begins with a word is mixed with the words behind it",
    ),
    Mutation(
        "shaders/core/blocks.glsl",
        "(at + BLOCK - 1) / ELEMENTS_PER_WORD",
        "(at + BLOCK) / ELEMENTS_PER_WORD",
        "the fifth word of an unaligned block is counted from the element behind it",
        "the word counts only where the block begins within one: then both elements lie in the same word",
    ),
)

ITEMS = (
    Mutation(
        "shaders/core/items.glsl",
        "bundle * each + (bundle * more + bundles - 1) / bundles",
        "bundle * each + more",
        "the first bundles leave out items that are nobody's",
    ),
    Mutation(
        "shaders/core/items.glsl",
        "(count + BUNDLE - 1) / BUNDLE",
        "count / BUNDLE",
        "a last turn of fewer items than a bundle is left out",
    ),
    Mutation(
        "shaders/core/items.glsl",
        "min(count, end * BUNDLE)",
        "end * BUNDLE",
        "invocations go on behind the last item",
    ),
)

REDUCTION = (
    Mutation(
        "shaders/core/axes.glsl",
        "(reduced_end - reduced_begin - 1) / stretch_size + 1",
        "(reduced_end - reduced_begin) / stretch_size",
        "a last stretch that is shorter than the others is left out",
    ),
    Mutation(
        "shaders/core/axes.glsl",
        "begin + min(reduced_end - begin, stretch_size)",
        "begin + stretch_size",
        "a last stretch reads on behind the last element",
    ),
    Mutation(
        "shaders/core/axes.glsl",
        "(stretch * output_count + i) * STATE_WORDS",
        "(i * stretch_count + stretch) * STATE_WORDS",
        "records stand output by output instead of stretch by stretch",
    ),
    Mutation(
        "shaders/core/axes.glsl",
        "uint at = first_output + i + target_base;",
        "uint at = i + target_base;",
        "a later range of outputs is written over the first one",
    ),
    Mutation(
        "shaders/core/axes.glsl",
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
        "min(end, index - index % line + line)",
        "min(end, index + line)",
        "a stretch that begins within a run of the last dimension leads on past its end",
    ),
    Mutation(
        "shaders/reduce.comp",
        "line_end - index >= 4",
        "line_end - index >= 3",
        "three elements at the end of a run are read as four",
    ),
)

ROWS = (
    Mutation(
        "shaders/accumulators/extremes.glsl",
        "address + begin + min(chunk + i * LANES * BLOCK, last)",
        "address + begin + chunk + i * LANES * BLOCK",
        "the last chunk of a row is read past the row's end",
    ),
    Mutation(
        "shaders/accumulators/extremes.glsl",
        "most > INFINITY) || top > (SIGN | INFINITY);",
        "most > INFINITY);",
        "a NaN with the sign set is not seen in long rows",
    ),
    Mutation(
        "shaders/accumulators/extremes.glsl",
        "top >= SIGN ? top : bottom",
        "top > SIGN ? top : bottom",
        "-0 is not the minimum of a long row of it and positive numbers",
    ),
    Mutation(
        "shaders/accumulators/extremes.glsl",
        "LAST ? !is_above(best_key, key) : is_above(key, best_key)",
        "is_above(key, best_key)",
        "DECREASING takes the first chunk that holds the winner",
    ),
    Mutation(
        "shaders/rows.comp",
        "RECALLED ? LOAD(source, address + index_of(state)) : Bits(0)",
        "Bits(0)",
        "the records of rows lack the winner's bits",
    ),
)

LANES = (
    Mutation(
        "shaders/core/lanes.glsl",
        "barrier();  // what the other half wrote",
        "// what the other half wrote",
        "lanes read the states of others before they are written",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "bool better_place = LAST ? later : earlier;",
        "bool better_place = earlier;",
        "DECREASING takes the first of equal elements of different lanes, pieces or segments",
    ),
    Mutation(
        "shaders/core/lanes.glsl",
        "barrier();  // the next turn writes",
        "// the next turn writes",
        "lanes write the states of the next turn before others have read those of this one",
    ),
    Mutation(
        "shaders/columns.comp",
        "barrier();  // the next turn writes",
        "// the next turn writes",
        "lanes write the columns of the next turn before others have read those of this one",
    ),
    Mutation(
        "shaders/core/lanes.glsl",
        "other > 0; other /= 2",
        "other > 1; other /= 2",
        "the states of the last two lanes are not combined",
    ),
    Mutation(
        "shaders/core/lanes.glsl",
        "(count + AT_ONCE - 1) / AT_ONCE * AT_ONCE",
        "count",
        "some invocations of a workgroup leave before a barrier that others wait at",
    ),
    Mutation(
        "shaders/core/lanes.glsl",
        "here + other * LANES_APART",
        "here + other",
        "lanes that are apart take the states of other outputs",
    ),
    Mutation(
        "shaders/rows.comp",
        "lane() == 0 && next < count",
        "lane() == 0",
        "invocations without an item write, too",
        "they repeat the last item, and write the same to the same place",
    ),
    Mutation(
        "shaders/combine.comp",
        "r > 0 && first + r * LANES >= end",
        "false",
        "the last record of a lane is added several times",
    ),
    Mutation(
        "shaders/combine.comp",
        "first_index + index_of(state)",
        "index_of(state)",
        "the indices of windows that are rows count from the begin of the window",
    ),
)

COLUMNS = (
    Mutation(
        "shaders/columns.comp",
        "min(owned, width - COLUMNS)",
        "owned",
        "a last, partial block of columns takes columns of the next row",
    ),
    Mutation(
        "shaders/columns.comp",
        "            if (k >= others)\n",
        "            if (k > others)\n",
        "the first column of every block is not written",
    ),
    Mutation(
        "shaders/columns.comp",
        "if (k >= others && next < count)",
        "if (k > others && next < count)",
        "the first column of every block that lanes share is not written",
    ),
    Mutation(
        "shaders/columns.comp",
        "operand = masked(operand, taken);",
        "operand = masked(operand, true);",
        "the first of a lane's last rows is added again for those that would lie behind the last one",
    ),
    Mutation(
        "shaders/columns.comp",
        "other < LANES; ++other",
        "other < LANES - 1; ++other",
        "what the last lane knows of a column is lost",
    ),
    Mutation(
        "shaders/columns.comp",
        "shared_columns[here + other * AT_ONCE]",
        "shared_columns[here + other]",
        "the columns of lanes are combined with those of neighbouring items",
    ),
    Mutation(
        "shaders/columns.comp",
        "shifted(state, begin)",
        "state",
        "the indices of later stretches of columns count from the begin of the stretch",
    ),
    Mutation(
        "shaders/accumulators/packed.glsl",
        "(LAST ? column : ~column) & OFFSETS",
        "~column & OFFSETS",
        "DECREASING gives the complement of the index in narrow columns",
    ),
    Mutation(
        "shaders/columns.comp",
        "first_column + column + begin * step_size",
        "column + begin * step_size",
        "a part of a row of outputs reads the row's first columns",
    ),
    Mutation(
        "shaders/columns.comp",
        "address + index_of(state) * step_size)",
        "address + (begin + index_of(state)) * step_size)",
        "the records of later stretches of columns have the bits of other elements",
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
        "left + c < width;",
        "left + c <= width;",
        "one element of 16 bits behind the row counts",
    ),
    Mutation(
        "shaders/windows.comp",
        "inside[c] = left + c < size.z",
        "inside[c] = left + c <= size.z",
        "one of another width behind the end of a row counts",
    ),
    Mutation(
        "shaders/windows.comp",
        "w < 4 ? element : joined(parts[w % 4], element)",
        "element",
        "of a row of a window of more than 4 elements the first are not summed",
    ),
    Mutation(
        "shaders/windows.comp",
        "WINDOW_WIDTH > 3",
        "WINDOW_WIDTH > 4",
        "of a row of 4 elements the last is not summed",
    ),
    Mutation(
        "shaders/windows.comp",
        "return at + steps * dilation;",
        "return at + steps;",
        "a window of least values that begins in the padding has the index of an element between its own",
    ),
    Mutation(
        "shaders/windows.comp",
        "at + padding < padding ?",
        "int(at) < 0 ?",
        "a window of least values that begins more than 2^31 rows before the input has no index",
    ),
    Mutation(
        "shaders/windows.comp",
        "SHARED ? top + r : first_inside(top, start_padding.y, DILATION_HEIGHT)",
        "top + r",
        "a window of least values that begins above the input has no index",
    ),
    Mutation(
        "shaders/windows.comp",
        "if (first_y < size.y)",
        "",
        "of least values, a row of the ring that is in the padding wins over those in the input",
    ),
    Mutation(
        "shaders/windows.comp",
        "y = top + r + h * DILATION_HEIGHT;",
        "y = top + r + h;",
        "dilated windows that share no rows take neighbouring ones",
    ),
    Mutation(
        "shaders/windows.comp",
        "uint fresh = RING_ROWS;",
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
        "shaders/accumulators/selection.glsl",
        "earlier = b.index < a.index;",
        "earlier = b.index > a.index;",
        "of equal elements in two rows of a window the later wins",
    ),
    Mutation(
        "shaders/windows.comp",
        "ring[h * DILATION_HEIGHT * RUN + k]",
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
        "lessThan(uvec2(y, z), size.yx)",
        "bvec2(y < size.y, true)",
        "the padding behind a volume counts",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "uint least = NUMBER_KIND == INT ? SIGN : 0",
        "uint least = 0",
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
        "shaders/core/stores.glsl",
        "(filled)[0] | (words)[(at) / ELEMENTS_PER_WORD] & ~0u << ((count) * BITS)",
        "(filled)[0]",
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
    Mutation(
        "shaders/pool.comp",
        "state = combine(state, state_of(operand_of(LOAD(source, address)), index));",
        "take(state, operand_of(LOAD(source, address)), index);",
        "in a part of a window least elements do not win",
    ),
)

COMBINE = (
    Mutation(
        "shaders/accumulators/selection.glsl",
        "return State(wins ? b.key : a.key, wins ? b.bits : a.bits, wins ? b.index : a.index);",
        "return State(wins ? b.key : a.key, b.bits, wins ? b.index : a.index);",
        "of two sets the index is that of one, the bits are those of the other",
    ),
    Mutation(
        "shaders/accumulators/selection.glsl",
        "State identity() { return before(LAST ? 0 : NONE); }",
        "State identity() { return before(0); }",
        "a set of no element wins over the least elements",
    ),
    Mutation(
        "shaders/combine.comp",
        "address - push.target_first < push.target_count",
        "address - push.target_first <= push.target_count",
        "the first output of the next segment is written behind this one",
    ),
    Mutation(
        "shaders/core/stores.glsl",
        "atomicAnd((words)[(at) / ELEMENTS_PER_WORD], ~(MASK << shift)); \\\n",
        "\\\n",
        "an 8- or 16-bit value is mixed with what was there",
    ),
)

GATHER = (
    Mutation(
        "shaders/gather.comp",
        "element.begin[d] = at > reach[d] ? (at - reach[d] - 1)",
        "element.begin[d] = at > reach[d] ? (at - reach[d])",
        "the first window that holds an element is passed over",
    ),
    Mutation(
        "shaders/gather.comp",
        "element.end[d] = min(at / window_stride[d] + 1, window_count[d]);",
        "element.end[d] = min(at / window_stride[d], window_count[d]);",
        "the last window that holds an element is passed over",
    ),
    Mutation(
        "shaders/gather.comp",
        "element.end[d] = min(at / window_stride[d] + 1, window_count[d]);",
        "element.end[d] = at / window_stride[d] + 1;",
        "elements behind the last window take one of the next row",
    ),
    Mutation(
        "shaders/gather.comp",
        "* window_stride.z < element.at.z - reach.z;",
        "* window_stride.z <= element.at.z - reach.z;",
        "along a row a window ends one element too early",
    ),
    Mutation(
        "shaders/gather.comp",
        "element.end.z < window_count.z && ",
        "",
        "along a row there are windows behind the last one",
    ),
    Mutation(
        "shaders/gather.comp",
        "if (k == ELEMENTS_PER_WORD - 1 || i == run_end - 1)",
        "if (k == ELEMENTS_PER_WORD - 1)",
        "a last word that is not full is not written",
    ),
    Mutation(
        "shaders/gather.comp",
        "shares_row = shares_depth * shares(y, 1);",
        "shares_row = shares_depth * shares(y, 0);",
        "a window's rows are counted as its depths are",
    ),
    Mutation(
        "shaders/gather.comp",
        "counted_begin = push.counts_padding == 0 ? start_padding : uvec3(0);",
        "counted_begin = start_padding;",
        "padding has no share where it is included",
    ),
    Mutation(
        "shaders/gather.comp",
        "if (window - push.maxima_first >= push.maxima_count)",
        "if (window - push.maxima_first + 1 >= push.maxima_count)",
        "the last maximum of a segment is left out",
    ),
    Mutation(
        "shaders/gather.comp",
        "if (address - push.source_first >= push.source_count)",
        "if (false)",
        "windows in other segments count once for each segment",
    ),
    Mutation(
        "shaders/gather.comp",
        "min(window_count, reach / window_stride + 1)",
        "reach / window_stride + 1",
        "parts are counted as if there were always as many windows as could hold an element",
    ),
    Mutation(
        "shaders/gather.comp",
        "if (all(lessThan(at, end)))",
        "if (at.z < end.z)",
        "windows in parts that do not hold an element have it",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/gather.py",
        "reach // stride + 1) for count, reach, stride in rows)",
        "max(1, reach // stride)) for count, reach, stride in rows)",
        "windows in parts lack the last ones",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/gather.py",
        "low = max(0, -(-(first + padding - windows.reach[i]) // stride))",
        "low = max(0, (first + padding) // stride)",
        "segments with the first windows of an element are not read",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/gather.py",
        "for segments in self.segments(begin, end)]",
        "for segments in self.segments(begin, end)[:1]]",
        "windows in further segments are left out",
    ),
    Mutation(
        "shaders/windows.comp",
        "                if (VALUES) {\n                    [[unroll]] for (uint i = 0; i + 3 < RUN_WORDS; i += 4)",
        "                {\n                    [[unroll]] for (uint i = 0; i + 3 < RUN_WORDS; i += 4)",
        "whole runs of values are written where there are indices alone",
    ),
)

UNPOOLING = (
    Mutation(
        "shaders/core/address.glsl",
        "if (PACKED)",
        "if (true)",
        "strided elements are looked for where packed ones lie",
    ),
    Mutation(
        "shaders/place.comp",
        "atomicMax(places[at + places_base], number + 1);",
        "places[at + places_base] = number + 1;",
        "of several elements any one stays",
    ),
    Mutation(
        "shaders/place.comp",
        "bool names = index.y == 0;",
        "bool names = true;",
        "of 64-bit indices the low half counts alone",
    ),
    Mutation(
        "shaders/place.comp",
        "at - first_output < output_count)",
        "at - first_output <= output_count)",
        "an index just behind the output writes behind its places",
        unseen="guards are greater than the number of any element here, and the greater word stays",
    ),
    Mutation(
        "shaders/place.comp",
        "if (address - source_first >= source_count)",
        "if (false)",
        "indices in other segments are read from this one",
    ),
    Mutation(
        "shaders/place.comp",
        "places[first + i] = 0;",
        "places[first + i] |= 0;",
        "places of the call before are still there",
    ),
    Mutation(
        "shaders/pick.comp",
        "if (!SEGMENTED || number - places_first < places_count)",
        "if (true)",
        "places of other segments are read from this one",
    ),
    Mutation(
        "shaders/pick.comp",
        "if (place != 0 && (!SEGMENTED || address - source_first < source_count))",
        "if (place != 0)",
        "elements of other segments are read from this one",
    ),
    Mutation(
        "shaders/accumulators/last.glsl",
        "bool later = b.number > a.number;",
        "bool later = b.number < a.number;",
        "of the records of an output one of no element counts",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/place.py",
        "for begin in range(0, source.element_count, self.most):",
        "for begin in range(0, source.element_count, 2 * self.most):",
        "elements of every other share are left out",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/place.py",
        "for begin in range(first, end, self.most):",
        "for begin in range(first, end, 2 * self.most):",
        "places of every other share are not cleared",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/pick.py",
        "places = range(begin // size, (end - 1) // size + 1)",
        "places = range(begin // size, begin // size + 1)",
        "places in the next segment are not read",
    ),
)

ACCUMULATORS = (
    Mutation(
        "shaders/accumulators/sum.glsl",
        "k >= skipped",
        "true",
        "elements of a last, partial block are summed twice",
    ),
    Mutation(
        "shaders/accumulators/sum.glsl",
        "added(a.sum, b.sum), joined(a.specials, b.specials)",
        "added(a.sum, b.sum), a.specials",
        "an infinity or NaN of another lane, piece or segment is lost",
    ),
    Mutation(
        "shaders/accumulators/sum.glsl",
        "Operand(sum, joined(a.specials, b.specials))",
        "Operand(sum, a.specials)",
        "an infinity or NaN of another element of a row of a small window is lost",
    ),
    Mutation(
        "shaders/accumulators/sum.glsl",
        "pattern & ~SIGN_BIT));",
        "pattern));",
        "absolute values have negative infinities",
    ),
    Mutation(
        "shaders/core/floats.glsl",
        "precise float low = sum.low + a.low,",
        "precise float low = 0.0 * sum.low,",
        "what a sum loses is not carried along",
    ),
    Mutation(
        "shaders/core/floats.glsl",
        "abs(sum.high) <= LARGEST ? Pair(high, rest)",
        "true ? Pair(high, rest)",
        "a sum that leaves the range of floats is NaN",
    ),
    Mutation(
        "shaders/core/floats.glsl",
        "+ 0xFFFu + (magnitude >> 13 & 1u)",
        "+ 0x1000u",
        "ties of float16 are rounded up",
    ),
    Mutation(
        "shaders/core/floats.glsl",
        "magnitude < 0x400u ? denormal : normal",
        "normal",
        "denormals of float16 are read as normal numbers",
    ),
    Mutation(
        "shaders/core/functions.glsl",
        "exact_sum(float(count & ~0xFFu), float(count & 0xFFu))",
        "Pair(float(count) + 1.0, 0.0)",
        "an average is of one element more",
    ),
    Mutation(
        "shaders/core/functions.glsl",
        "both = first + 0.5 * left / first;",
        "both = first - 0.5 * left / first;",
        "a root is corrected in the wrong direction",
    ),
    Mutation(
        "shaders/accumulators/integer.glsl",
        "return Bits(low, a.y + b.y + carry);",
        "return Bits(low, a.y + b.y);",
        "a sum of 64 bits carries nothing",
    ),
    Mutation(
        "shaders/accumulators/integer.glsl",
        "return Bits(low, high + a.x * b.y + a.y * b.x);",
        "return Bits(low, high + a.x * b.y);",
        "a product of 64 bits lacks a part of its high word",
    ),
    Mutation(
        "shaders/accumulators/integer.glsl",
        "POWER == 1 && NUMBER_KIND == INT && is_negative(bits)",
        "POWER == 1 && is_negative(bits)",
        "large unsigned integers have other absolute values",
    ),
    Mutation(
        "shaders/accumulators/product.glsl",
        "state.exponent += doubles ? 1 : 0;",
        "state.exponent += 0;",
        "a product loses powers of two",
    ),
    Mutation(
        "shaders/accumulators/product.glsl",
        "a.negative ^ b.negative",
        "a.negative | b.negative",
        "two negative parts have a negative product",
    ),
    Mutation(
        "shaders/accumulators/product.glsl",
        "infinite && zero",
        "false",
        "infinity times 0 is infinity",
    ),
    Mutation(
        "shaders/accumulators/logsumexp.glsl",
        "empty = state.least >= (SIGN_BIT | INFINITE)",
        "empty = false",
        "the logarithm of no exponentials is a number",
    ),
    Mutation(
        "shaders/accumulators/logsumexp.glsl",
        "        move(state, greatest.exponent);",
        "        state.shift = greatest.exponent;",
        "a sum of exponentials is not scaled where the shift moves",
    ),
    Mutation(
        "shaders/core/row.glsl",
        "greater(greatest, greatest_of(blocks[i]))",
        "greatest",
        "the shift is that of the first of the blocks that a lane waits for",
    ),
    Mutation(
        "shaders/columns.comp",
        "greater(greatest, operand_of(element_of(blocks[r][0], k)))",
        "greatest",
        "the shift is that of the first of the rows that a lane waits for",
    ),
    Mutation(
        "dmlgpu/lowering/accumulators.py",
        "ReduceFunction.L2: Sum(power=2, result=SumResult.ROOT)",
        "ReduceFunction.L2: Sum(power=2)",
        "L2 has no root",
    ),
    Mutation(
        "shaders/accumulators/logsumexp.glsl",
        "STEP = 4.0",
        "STEP = 80.0",
        "a sum of exponentials keeps a shift with which few digits of its logarithm are left",
    ),
    Mutation(
        "dmlgpu/reference/bounds.py",
        "(4 + multiplications) * U * terms.total",
        "(4000 + multiplications) * U * terms.total",
        "the bound of sums is a thousand times too large",
    ),
    Mutation(
        "dmlgpu/reference/bounds.py",
        "8 * U * np.where(np.isfinite(value), np.abs(value), 0)",
        "8 * U * np.abs(value)",
        "any result of Lp pooling is right where it is infinite",
    ),
    Mutation(
        "dmlgpu/reference/bounds.py",
        "sum_error(_summed(gather, terms), 2)",
        "sum_error(_summed(gather, terms), 60)",
        "the bound of gradients is ten times too large",
    ),
)

LOWERING = (
    Mutation(
        "dmlgpu/lowering/split.py",
        "(begin // n + 1) * n",
        "(begin // n + 2) * n",
        "a range that is written in place leads on into the next segment of an output",
    ),
    Mutation(
        "dmlgpu/lowering/split.py",
        "len(kernel.pieces(begin, min(end, here))) == 1",
        "len(kernel.pieces(begin, min(end, here))) < 3",
        "a range of two pieces is written in place, from the first piece alone",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "record_count(kernel.limits, records) * count",
        "record_count(kernel.limits, 1) * count",
        "there is memory for the records of one piece",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "max(size for _, size in planned)",
        "planned[-1][1]",
        "there is memory for the records of the last range",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "first += part.records",
        "first += 1",
        "the records of a piece are counted as one",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/combine.py",
        '"target_base": wrapped(-segment * size)',
        '"target_base": 0',
        "later segments of a strided output are written past their ends",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
        "min(most, limits.segment_bytes) // (4",
        "most // (4",
        "records take more than a buffer has",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
        "target.first * (end - begin) * self.record_words",
        "target.first * self.record_words",
        "the records of several pieces overlap",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
        "wrapped(-(begin // size * size))",
        "wrapped(-begin)",
        "a range that begins within a segment of the output is written at the segment's begin",
    ),
    Mutation(
        "dmlgpu/lowering/accumulators.py",
        "return max(1, data_type.bits // 32)",
        "return 1",
        "there is memory for the records of 32-bit elements only",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
        "GRANULE = 64",
        "GRANULE = 2",
        "ranges of 8-bit outputs begin within a word",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
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
    Mutation(
        "dmlgpu/lowering/lower.py",
        'kernel.obstacle or (kernel.drawback if wanted is None else "")',
        "kernel.obstacle",
        "kernels are taken that do badly on a device",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "wanted in (None, kernel.name)",
        "True",
        "the first kernel that fits is taken, whichever is asked for",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/rows.py",
        "if self.count < self.block:",
        'if self.count < self.block and self.name == "lanes":',
        "rows of less than a block are read in blocks",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/columns.py",
        "if self.row < self.block:",
        "if False:",
        "columns of less than a block are read in blocks",
    ),
)

ARG_PLANS = (
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "-(-stretch // self.block) * self.block",
        "stretch",
        "stretches are not whole blocks, where blocks are taken to be aligned",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "return all(step % self.block",
        "return any(step % self.block",
        "one aligned step counts for all",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/rows.py",
        "self.is_aligned(piece.begin, piece.end, ",
        "self.is_aligned(piece.begin, ",
        "rows that end with a partial block count as aligned",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/columns.py",
        "self.reduced[0].stride, *rows)",
        "self.reduced[0].stride)",
        "columns count as aligned wherever their rows of outputs begin",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "(last - high - reach) // outer.stride + 1",
        "(last - low - reach) // outer.stride + 1",
        "elements that lie in the segment for the first output count as there for all",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "-(-(first - high - reach) // outer.stride)",
        "-(-(first - low - reach) // outer.stride)",
        "elements are left out that lie in the segment for the last outputs only",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "return most if self.covers_all else min(most, self.general._most_items(stretch_size))",
        "return most",
        "the slower kernel for several segments may pass the loop limit",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "min(self._most_items(self.stretch_size) // splits, self.short_outputs)",
        "self._most_items(self.stretch_size) // splits",
        "a dispatch looks at more elements than the limit",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/columns.py",
        " and end - begin >= self.block\n",
        "\n",
        "columns are taken for a part of a row that has less than a block",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/rows.py",
        "flat=len(self.kept) <= 1",
        "flat=len(self.kept) <= 2",
        "outputs along two kept dimensions are taken to stand at one stride",
    ),
)

# Loops, levels of records, and parts in several dispatches.
LOOPS = (
    Mutation(
        "dmlgpu/lowering/loops.py",
        "turns * self._turn + self._end",
        "turns * self._turn + 1",
        "the turn in which a loop ends does not count the loops inside",
    ),
    Mutation(
        "dmlgpu/lowering/limits.py",
        "Loop(-(-items // self.at_once(lanes)), loops)",
        "Loop(items // self.at_once(lanes), loops)",
        "items that are left over are not counted",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "if longest.iterations > limits.loop_iterations:",
        "if longest.iterations > 2 * limits.loop_iterations:",
        "a plan may pass the loop limit",
    ),
    Mutation(
        "dmlgpu/lowering/lower.py",
        "if limits.cooperating or dispatches < _FEW:",
        "if dispatches < _FEW:",
        "dispatches of a GPU may be longer than its watchdog allows",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "(stretch_size + line - 2) // line + 1 if",
        "stretch_size // line if",
        "lines that a stretch has a part of are not counted",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/reduce.py",
        "Loop(min(line, 3), self.problem.accumulator.loops)",
        "Loop(line % 4, self.problem.accumulator.loops)",
        "parts of lines end with no more elements than whole ones",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/pool.py",
        "rest = Loop(min(width, self.block - 1), accumulating)",
        "rest = Loop(width % self.block, accumulating)",
        "rows at the border of the input end with no more elements than others",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/gather.py",
        "(outputs + width - 2) // width + 1",
        "outputs // width",
        "a run that begins within a row takes no row more",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        ", Loop(self.ring_rows - self.fresh, rows)",
        ", Loop(0, rows)",
        "the first output of a strip takes no more rows than others",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "Loop(self.run, (Loop(self.line.step), Loop(4)))",
        "Loop(self.run, (Loop(self.line.step),))",
        "the loop that stores is not counted",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/combine.py",
        "return address, Loop(-(-records // lanes)), Loop(lanes.bit_length())",
        "return address, Loop(lanes.bit_length())",
        "records are not counted",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/combine.py",
        "behind = base + first * (end - begin) * words",
        "behind = base + (end - begin) * words",
        "a level overwrites the records that it reads",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/combine.py",
        "if records <= most * limits.most_lanes:",
        "if True:",
        "all records are combined at once",
    ),
    Mutation(
        "shaders/combine.comp",
        "(record_count - 1) / stretch_size + 1 : 1",
        "record_count / stretch_size : 1",
        "the last stretch of records is left out",
    ),
    Mutation(
        "shaders/combine.comp",
        "begin = stretch * stretch_size;",
        "begin = 0;",
        "each stretch of records begins with the first",
    ),
    Mutation(
        "shaders/pool.comp",
        "(part_begin + part) % part_counts.z",
        "part % part_counts.z",
        "parts of a further dispatch begin with the first of a row",
    ),
    Mutation(
        "shaders/gather.comp",
        "begin = part_begin + part * part_size;",
        "begin = part * part_size;",
        "parts of a further dispatch begin with the first",
    ),
    Mutation(
        "dmlgpu/lowering/split.py",
        "end - begin > (last - begin) // _FEWEST",
        "end > begin",
        "outputs whose neighbours lie in another segment are computed a few at a time",
    ),
)

POOLING_PLANS = (
    Mutation(
        "shaders/pool.comp",
        "part_window = min(part_sizes, window_size - window_offset);",
        "part_window = part_sizes;",
        "the last part of a window goes on behind the window",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/pool.py",
        "(most - begins_along) // step + 1",
        "(most - begins_along) // step",
        "parts of the first windows are left out that lie in the padding of the last one",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "[self.run * windows.window_stride[2], *self.row_steps]",
        "[self.run * windows.window_stride[2]]",
        "small windows count as aligned wherever rows begin",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "phase=-windows.start_padding[2]",
        "phase=windows.start_padding[2]",
        "padded small windows begin elsewhere in a block",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/pool.py",
        "[windows.window_stride[2], windows.start_padding[2], *self.row_steps]",
        "[windows.window_stride[2], *self.row_steps]",
        "long windows count as aligned whatever their padding",
    ),
    Mutation(
        "shaders/windows.comp",
        "SHARED ? window_stride.y : 1",
        "1",
        "windows that share rows go down one row, whatever their stride",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "return pays and self._strip(self._longest_run) > 1",
        "return pays",
        "windows in strips of one row pay for a ring",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "loops = windows.window_size[0] * self.held_rows > 1",
        "loops = windows.window_size[0] > 1",
        "runs are so long that registers of unrolled rows are spilt",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "if windows.output_size[2] % per_word != 0:",
        "if False:",
        "rows of small windows may share a word",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "if max(self.window_end) > MAX_ELEMENTS:",
        "if False:",
        "small windows that reach past 2^32 come back into the input",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "begin % self.unit == end % self.unit == 0",
        "begin % self.unit == 0",
        "small windows are taken for a range that ends within a row",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/kernel.py",
        "return batch - plane * self.planes.stride",
        "return batch",
        "later batch entries at a stride of their own are read elsewhere",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/windows.py",
        "slabs = min(items // (self.runs * -(-height // self.strip))",
        "slabs = min(items // (self.runs * (height // self.strip))",
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
        "dmlgpu/runtime/kompute.py",
        "self._drop({min(self._kept_pipelines",
        "self._drop({max(self._kept_pipelines",
        "the pipeline that was used last goes first",
    ),
    Mutation(
        "dmlgpu/runtime/memory.py",
        "            self.trim(0)\n",
        "            self.trim(self.keep)\n",
        "there is no memory while empty buffers are kept",
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
        "dmlgpu/runtime/tensor.py",
        'self.dtype.kind in "iu"',
        'self.dtype.kind in "i"',
        "sums of unsigned integers wrap in silence where NumPy's do not",
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
        "at = [(b.written,",
        "at = [(not b.written,",
        "what a step reads counts as written, and what it writes as read",
    ),
    Mutation(
        "dmlgpu/runtime/engine.py",
        "(step, held) for step in steps",
        "(step, ()) for step in steps",
        "tensors that are dropped in a batch give their memory to others before they are read",
    ),
    Mutation(
        "dmlgpu/runtime/tuning.py",
        "info.max_storage_buffer_range, info.max_memory_allocation_size - ALIGNMENT,",
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
        "min(limit, (rest - each) // stride)",
        "(rest - each) // stride",
        "strided tensors count as overlapping where elements outside them would",
    ),
    Mutation(
        "dmlgpu/descriptors/operator.py",
        "and tensor.overlaps is not False",
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
        "counts[i] > count + 1",
        "counts[i] > count + 2",
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
        " and content.endswith(_END)",
        "",
        "a module that was cut is loaded",
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
    Mutation(
        "dmlgpu/runtime/drivers.py",
        '"maxStorageBufferRange": 1 << 27',
        '"maxStorageBufferRange": 1 << 26',
        "a device with smaller storage buffers than Vulkan requires is taken",
    ),
    Mutation(
        "dmlgpu/runtime/engine.py",
        "self.relays.used_bytes >= self.relays.keep",
        "self.relays.used_bytes > self.relays.keep",
        "a batch takes one relay more than is kept",
    ),
    Mutation(
        "dmlgpu/runtime/engine.py",
        "if buffer.relays)",
        "if buffer.staged)",
        "the copy of a large array counts as the pace of the steps",
    ),
    Mutation(
        "dmlgpu/runtime/engine.py",
        "first = () if self._batches else",
        "first =",
        "small arrays that are given in a batch are never uploaded",
    ),
    Mutation(
        "dmlgpu/runtime/compiled.py",
        "written if uploads else ()",
        "()",
        "a call with arrays has a transfer for each output",
    ),
    Mutation(
        "dmlgpu/runtime/kompute.py",
        "                buffer.current = False\n",
        "                pass\n",
        "what a step wrote is not downloaded where the buffer was read before",
    ),
    Mutation(
        "dmlgpu/runtime/kompute.py",
        "if buffer.staged and not buffer.current:",
        "if buffer.staged:",
        "what the host has is downloaded again",
    ),
    Mutation(
        "dmlgpu/runtime/kompute.py",
        "begins = (uploads, *((),) * len(others))",
        "begins = (*((),) * len(others), uploads)",
        "small arrays are uploaded with the last submission of a call, not the first",
    ),
)

SWEEPS = (
    Mutation(
        "shaders/sweep.comp",
        "first = start + int(((0 - uint(start) - 1) / dilation + 1) * dilation);",
        "first = 0;",
        "in the padding of dilated windows the element of another class is taken",
    ),
    Mutation(
        "shaders/sweep.comp",
        "last -= (last - first) % int(dilation);",
        ";",
        "behind the end of dilated windows the element of another class is taken",
    ),
    Mutation(
        "shaders/sweep.comp",
        "for (uint i = (RUN - 1) * STEP + 1; i < window_size; ++i)",
        "for (uint i = (RUN - 1) * STEP + 2; i < window_size; ++i)",
        "the middle of a run lacks its last element",
    ),
    Mutation(
        "shaders/sweep.comp",
        "head[c] = appended(loaded[c], head[c]);",
        "head[c] = appended(head[c], loaded[c]);",
        "of equal elements of a head the last one wins",
    ),
    Mutation(
        "shaders/sweep.comp",
        "state = appended(state, tail[c]);",
        "state = appended(tail[c], state);",
        "of equal elements that of the tail wins",
    ),
    Mutation(
        "shaders/sweep.comp",
        "window < output_size && column < width",
        "window < output_size",
        "blocks behind the end of a row of 64-bit partials are written over the next row",
    ),
    Mutation(
        "shaders/sweep.comp",
        "found[i] = index_base + position;",
        "found[i] = position;",
        "indices count within a row",
    ),
    Mutation(
        "shaders/sweep.comp",
        "uint in_class = run / classes;",
        "uint in_class = run % classes;",
        "runs of several classes are mixed up",
    ),
    Mutation(
        "shaders/sweep.comp",
        "if (i * ELEMENTS_PER_WORD / WORDS_PER_ELEMENT < left)",
        "if (true)",
        "the end of a row of outputs is written over the next row",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "width % group == 0,",
        "True,",
        "rows that are no whole groups are stored as such",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "(group % per_word != 0 or width % per_word != 0)",
        "False",
        "rows of outputs overwrite words that they share",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "(whole and plane == planes_of(self.source).stride)",
        "whole",
        "rows of planes with a gap between them are taken as if they stood at one stride",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "slab == (windows.size[1], windows.stride[0])",
        "slab[0] == windows.size[1]",
        "rows of slabs with a gap between them are taken as if they stood at one stride",
    ),
    Mutation(
        "dmlgpu/lowering/kernels/sweep.py",
        "for axis, line in (2, width), (1, height), (0, depth):",
        "for axis, line in (2, width), (1, height):",
        "volumes are not swept along depth",
    ),
)


MUTATIONS = (
    *SELECTION,
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
    *SWEEPS,
    *POOL,
    *COMBINE,
    *GATHER,
    *UNPOOLING,
    *ACCUMULATORS,
    *LOWERING,
    *ARG_PLANS,
    *POOLING_PLANS,
    *LOOPS,
    *SCHEDULING,
    *CHECKS,
)
