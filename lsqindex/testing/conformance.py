"""The contract of an encoder as a test suite: encoders inherit the tests.

Use it in a test file of the package that has the encoder::

    from lsqindex.testing import EncoderConformance
    from my_package import MyEncoder

    class TestMyEncoder(EncoderConformance):
        def make_encoder(self):
            return MyEncoder(bits=64)

``pytest`` then runs every ``test_*`` method of this class. The tests use plain asserts and need only NumPy and
lsqindex.
"""

from __future__ import annotations

from .code_claims import CodeClaims
from .fit_claims import FitClaims
from .layout_claims import LayoutClaims
from .state_claims import StateClaims
from .table_claims import TableClaims


class EncoderConformance(FitClaims, CodeClaims, TableClaims, StateClaims, LayoutClaims):
    """Tests of the contract of an encoder: inherit from this class and override :meth:`make_encoder`.

    You can also override ``dim`` and ``vectors``. ``vectors`` must be at least a few hundred float32 rows on which the
    encoder can be expected to do better than the mean.

    Examples
    --------
    >>> from lsqindex import make_encoder
    >>> class TestLSH(EncoderConformance):
    ...     dim = 8
    ...     def make_encoder(self):
    ...         return make_encoder("lsh", bits=32)
    >>> TestLSH().test_fit_returns_the_encoder_itself()
    """
