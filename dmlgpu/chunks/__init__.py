"""Reductions, scans and poolings of arrays in chunks: the computation of each chunk, and the combination of the parts.

    Reduction   chunks of x   -- partial -->   partials   -- merged -->   a partial   -- results -->   outputs
    Scan        a chunk of x, and the merged partials of all chunks before it   -- values -->   a region of the outputs
    Pooling     a chunk of x                                                    -- outputs -->  a region of the outputs

A reduction computes a partial result of each chunk. Partials are merged in any order and grouping, so any process can
compute any chunk. A pooling computes each region of its outputs from the part of x that the region's windows read.

Devices compute the results of chunks, except exact sums of few elements. NumPy merges these results, in float64 if
merging rounds.
"""
