// Tiles of outputs. A dispatch has whole slabs (of one depth), or rows of one slab. An item is a tile:
//
//   item = (slab * tile_rows + row of tiles) * tiles_per_row + tile of the row

struct Tiles {
    uvec3 size;          // of the outputs
    uint width;          // outputs of a tile in each row
    uint height;         // rows of a tile; the last tiles of a slab may have fewer
    uint first_row;      // of this dispatch
    uint slab_rows;      // rows of a slab in this dispatch
    uint tile_rows;      // rows of tiles that these rows need
    uint tiles_per_row;
    uint count;          // of this dispatch
};

Tiles tiles_of(uvec3 size, uint width, uint height, uint first_output, uint output_count)
{
    uint row_count = output_count / size.z, slab_rows = min(size.y, row_count);
    uint tile_rows = (slab_rows - 1) / height + 1, tiles_per_row = (size.z - 1) / width + 1;
    uint count = row_count / slab_rows * tile_rows * tiles_per_row;
    return Tiles(size, width, height, first_output / size.z, slab_rows, tile_rows, tiles_per_row, count);
}

// A tile has rows `row` to `end` - 1, counted over all slabs. Row `row` is row `top` of its slab.
struct Tile {
    uint plane;
    uint depth;
    uint top;
    uint left;
    uint row;
    uint end;
};

Tile tile_number(uint item, Tiles tiles)
{
    uint tile_row = item / tiles.tiles_per_row, left = (item - tile_row * tiles.tiles_per_row) * tiles.width;
    uint slab_number = tile_row / tiles.tile_rows;  // counted in this dispatch, like tile_row
    uint first = tiles.first_row + slab_number * tiles.slab_rows;
    uint row = first + (tile_row - slab_number * tiles.tile_rows) * tiles.height;
    uint slab = row / tiles.size.y, plane = slab / tiles.size.x;
    uint end = min(row + tiles.height, first + tiles.slab_rows);
    return Tile(plane, slab - plane * tiles.size.x, row - slab * tiles.size.y, left, row, end);
}

// STORE_OF_TILE writes output `k` of a tile's row, which is element `at` of the buffer, if `is_output`; neighbouring
// outputs follow each other. `filled` keeps outputs until their word is full; with WHOLE_VECTORS, where tiles and rows
// of outputs consist of vectors, until their vector is full. Each output has a branch: llvmpipe spills registers if all
// outputs of a row are computed before the first branch.
#define STORE_OF_TILE(words, vectors, filled, k, at, bits, is_output) \
    { \
        PUT(filled, (k) % VECTOR_SIZE, bits) \
        if (is_output) { \
            if (WHOLE_VECTORS && ((k) + 1) % VECTOR_SIZE == 0) \
                (vectors)[(at) / VECTOR_SIZE] = uvec4((filled)[0], (filled)[1], (filled)[2], (filled)[3]); \
            if (!WHOLE_VECTORS && (BITS >= 32 || SHARED_WORDS)) \
                STORE_ELEMENT(words, at, bits) \
            else if (!WHOLE_VECTORS && ((k) + 1) % ELEMENTS_PER_WORD == 0) \
                (words)[(at) / ELEMENTS_PER_WORD] = (filled)[(k) % VECTOR_SIZE / ELEMENTS_PER_WORD]; \
        } \
    }
