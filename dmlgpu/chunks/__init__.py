"""Reductions, scans and poolings of arrays in chunks: the computation of each chunk, and the combination of the parts.

    chunks       -- partial -->  partials   -- merged -->   one partial   -- results -->   outputs  Reduction
    chunk of x, merged partials of those before it   -- values -->   a region of the outputs        Scan
    chunk of x   -- outputs -->  a region of the outputs                                            Pooling

A reduction computes a partial result from each chunk. Partials merge in any order and grouping, so any process can
compute any chunk. A pooling computes each region of its outputs from the part of x that the region's windows read.

Devices compute the chunks, except for exact sums of few elements. NumPy merges their results, in float64 if that
rounds.
"""
