"""What a rule may know about tokens besides their probabilities: which codes look alike.

LANTERN's neighbours (Jang et al., 2025, arXiv 2410.03355) and GSD's groups (So et al., 2025, arXiv 2508.07747) live in the
space of the tokeniser's code vectors.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


class Space:
    """Code vectors float32 [V, d] and what follows from them, computed once when first asked for."""

    def __init__(self, vectors: Array):
        self.vectors = np.asarray(vectors, np.float32)
        self._norms = (self.vectors**2).sum(-1)
        self._near: dict[int, tuple[Array, Array]] = {}
        self._groups: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self.vectors)

    def squared_distance(self, x: Array, y: Array) -> Array:
        """Squared Euclidean distance of tokens x and y, int arrays that broadcast."""
        return ((self.vectors[x] - self.vectors[y]) ** 2).sum(-1)

    def nearest(self, x: Array, k: int) -> Array:
        """The k other codes nearest to each token x [n], nearest first, int32 [n, k]; ties by token number.

        Kept once found: a picture asks for the same tokens again and again.
        """
        k = min(k, len(self) - 1)
        if k not in self._near:
            self._near[k] = np.empty((len(self), k), np.int32), np.zeros(len(self), bool)
        near, known = self._near[k]
        new = np.unique(x[~known[x]])
        for part in np.array_split(new, -(-len(new) // 1024)) if len(new) else ():
            near[part], known[part] = self._find(part, k), True
        return near[x]

    def _find(self, x: Array, k: int) -> Array:
        if not k:
            return np.zeros((len(x), 0), np.int32)
        far = self._norms - 2 * self.vectors[x] @ self.vectors.T
        far[np.arange(len(x)), x] = np.inf
        near = np.sort(np.argpartition(far, k - 1, -1)[:, :k], -1)
        order = np.argsort(np.take_along_axis(far, near, -1), -1, kind="stable")
        return np.take_along_axis(near, order, -1)

    def table(self, k: int) -> Array:
        """`nearest` of every token, int32 [V, k]."""
        return self.nearest(np.arange(len(self)), k)

    def groups(self, size: int) -> Array:
        """A fixed partition into groups of at most `size` codes that lie together, int [V].

        Halved along the direction of largest variance until small enough, so groups are full but for rounding.
        """
        if size not in self._groups:
            label, todo, found = np.zeros(len(self), np.int64), [np.arange(len(self))], 0
            while todo:
                members = todo.pop()
                if len(members) <= size:
                    label[members], found = found, found + 1
                    continue
                axis = self.vectors[members].var(0).argmax()
                members = members[np.argsort(self.vectors[members, axis], kind="stable")]
                cut = max(1, round(len(members) / size / 2)) * size
                todo += [members[cut:], members[:cut]]
            self._groups[size] = label
        return self._groups[size]
