"""The contract, inherited, and one search: this is all that a plugin's author has to write."""

import numpy as np

from lsqindex import Encoder, Index, make_encoder
from lsqindex.testing import EncoderConformance, clustered_vectors


class TestSignPCA(EncoderConformance):
    """Found by its name, through the installed entry point."""

    def make_encoder(self) -> Encoder:
        """A new encoder, always with the same parameters."""
        return make_encoder("sign-pca", bits=16)


def test_an_index_finds_vectors_by_it() -> None:
    """What the contract is for."""
    vectors = clustered_vectors(24)
    with Index(dim=24, encoder="sign-pca", bits=24, keep_vectors="float16") as index:
        index.train(vectors)
        index.add(vectors)
        found = index.search(vectors[:20], k=5, rerank=100)
    assert np.array_equal(found.ids[:, 0], np.arange(20))
