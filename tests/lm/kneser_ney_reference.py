"""Modified Kneser-Ney smoothing straight from its definition (engine/lm/kneser_ney.h), slowly, in dictionaries.

An n-gram is a tuple of words. Standard library only.
"""

import collections
import math


def padded(words):
    return ["<s>", *words, "</s>"]


def occurrences(sentences, order):
    """How often each n-gram of up to `order` words occurs; <s> alone is none."""
    count = collections.Counter()
    for words in sentences:
        line = padded(words)
        for end in range(2, len(line) + 1):
            for n in range(1, order + 1):
                if end - n >= 0:
                    count[tuple(line[end - n:end])] += 1
    return count


def adjusted_counts(count, order):
    """For n-grams below the highest order that do not begin with <s>: after how many words they stand."""
    lefts = collections.defaultdict(set)
    for gram in count:
        if len(gram) > 1:
            lefts[gram[1:]].add(gram[0])
    return {gram: c if len(gram) == order or gram[0] == "<s>" else len(lefts[gram]) for gram, c in count.items()}


def discounts(adjusted, n, fallback):
    t = collections.Counter(a for gram, a in adjusted.items() if len(gram) == n)
    if not (t[1] and t[2] and t[3]):
        return fallback
    y = t[1] / (t[1] + 2 * t[2])
    found = [k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3)]
    return found if all(0 <= d <= k for k, d in enumerate(found, 1)) else fallback


class Model:
    """log10 p and log10 of the back-off weight for each n-gram that is kept."""

    def __init__(self, sentences, order, prune=(), fallback=(0.5, 1, 1.5)):
        prune = [*prune] + [prune[-1] if prune else 0] * order
        self.order = order
        count = occurrences(sentences, order)
        adjusted = adjusted_counts(count, order)
        self.words = {gram[0] for gram in count if len(gram) == 1} | {"<unk>"}
        self.discounts = {n: discounts(adjusted, n, fallback) for n in range(1, order + 1)}
        self.kept = {gram for gram, c in count.items() if c > prune[len(gram) - 1]}
        followers = collections.defaultdict(list)
        for gram in adjusted:
            followers[gram[:-1]].append(gram)
        self.adjusted, self.total, self.gamma = adjusted, {}, {}
        for context, grams in followers.items():
            self.total[context] = sum(adjusted[g] for g in grams)
            free = sum(self.discount(g) if g in self.kept else adjusted[g] for g in grams)
            self.gamma[context] = free / self.total[context]
        grams = self.kept | {("<unk>",)}
        self.entries = {g: (math.log10(self.p(g)), self.backoff(g)) for g in grams}
        self.entries[("<s>",)] = (-99, self.backoff(("<s>",)))

    def discount(self, gram):
        return self.discounts[len(gram)][min(self.adjusted[gram], 3) - 1]

    def backoff(self, gram):
        return math.log10(self.gamma[gram]) if len(gram) < self.order and gram in self.gamma else 0

    def p(self, gram):
        """Of a kept n-gram, or of <unk>."""
        lower = self.p(gram[1:]) if len(gram) > 1 else 1 / len(self.words)
        own = 0
        if gram in self.adjusted:
            own = (self.adjusted[gram] - self.discount(gram)) / self.total[gram[:-1]]
        return own + self.gamma[gram[:-1]] * lower


def read_arpa(text):
    """{n-gram: (log10 p, log10 of the back-off weight)}"""
    entries, order = {}, 0
    for line in text.split("\n"):
        if line.endswith("-grams:"):
            order = int(line[1:line.index("-")])
        elif order and line and not line.startswith("\\"):
            p, words, *backoff = line.split("\t")
            entries[tuple(words.split(" "))] = (float(p), float(backoff[0]) if backoff else 0)
    return entries


def backed_off(entries, context, word):
    """log10 p(word | context) by an ARPA file's entries."""
    total = 0
    while context + (word,) not in entries:
        total += entries.get(context, (0, 0))[1]
        context = context[1:]
    return total + entries[context + (word,)][0]
