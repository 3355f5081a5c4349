"""Greedy decoding: the next token is the one with the highest score.

The scores are float16, like those of language models. Different scores become equal in float16, so it matters which of
them wins. Two compiled operators find the first and the last of equal scores in the same device tensor.
"""

import numpy as np

from dmlgpu import ArgmaxOperatorDesc, AxisDirection, Device

WORDS = ["a", "bird", "cat", "one", "sees", "the"]

# Instead of a model: the scores of all words after each word. In float16 both 20.001 and 20.003 are 20.
scores_after = np.zeros((6, 6), np.float16)
for word, following, score in [
    ("a", "cat", 20),
    ("one", "sees", 20),
    ("bird", "sees", 20),
    ("cat", "sees", 20),
    ("sees", "the", 20),
    ("the", "bird", 20.001),
    ("the", "cat", 20.003),
]:
    scores_after[WORDS.index(word), WORDS.index(following)] = score

texts = [["a"], ["one"]]  # a batch of two
with Device() as device:
    logits = scores_after[:2]  # (batch, vocabulary): operators are compiled for a type and a shape
    first = device.compile(ArgmaxOperatorDesc.of(logits, axes=(1,)))
    last = device.compile(ArgmaxOperatorDesc.of(logits, axes=(1,), axis_direction=AxisDirection.DECREASING))
    for _ in range(6):
        logits = device.tensor(scores_after[[WORDS.index(text[-1]) for text in texts]])  # one upload for both
        for text, i, j in zip(texts, first(logits).numpy().ravel(), last(logits).numpy().ravel(), strict=True):
            if i != j:
                print(f"{' '.join(text)} ... {WORDS[i]} or {WORDS[j]}?")
            text.append(WORDS[i])

for text in texts:
    print(" ".join(text))
