"""The contract, inherited: this is all that a plugin's author has to write."""

from lsqindex import Encoder, make_encoder
from lsqindex.testing import EncoderConformance


class TestSignPCA(EncoderConformance):
    """Found by its name, through the installed entry point."""

    def make_encoder(self) -> Encoder:
        return make_encoder("sign-pca", bits=16)
