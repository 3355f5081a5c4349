"""Reductions and poolings of arrays in chunks: what is computed from each chunk, and how the parts are combined.

    chunks       -- partial -->  partials   -- merged -->   one partial   -- results -->   outputs  Reduction
    chunk of x   -- outputs -->  a region of the outputs                                            Pooling

A reduction computes a partial result from each chunk. Partials merge in any order and grouping, so any process can
compute any chunk. A pooling computes each region of its outputs from the part of x that the region's windows read.

Devices compute the chunks, except for exact sums of few elements. NumPy merges their results, in float64 where that
rounds.
"""
