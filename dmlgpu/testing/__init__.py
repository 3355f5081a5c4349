"""Cases of every operator, and how other libraries run them.

    case        cases.py        an operator, and what fills.py fills its inputs with
     |
     v
    trial       trials.py       a case as a call of a library: libraries.py has its text, the oracle its results
     |          isolated.py     runs the text in a process of its own, child.py
     v
    outcome     outcomes.py     the library's results are the same, or differ by ties, by NaN, ...
     |
     v
    difference  differences.py  all outcomes of one kind, and the document that makes them wrong, or leaves them open
     |          reproducers.py  the smallest of them as a program of some five lines

`__main__` prints the numbers of outcomes, then the differences.
"""
