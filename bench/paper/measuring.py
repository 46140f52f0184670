"""One unit of work: a code is trained once, and all that the paper's figures ask of it is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex.encoders import Encoder
from lsqindex.encoders.base import Codes
from lsqindex.errors import ParameterError, TooFewVectorsError

from ..material.data import Dataset, Vectors
from ..material.rate_distortion import relative_error
from . import features
from .codes import AS_FEATURES, CK_MEANS, VECTORS, Code
from .plan import Plan
from .ranking import Places, by_distance, by_score

#: Digits that are kept of what is measured.
_DIGITS = 6


def measure(code: Code, seed: int, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """All values of a unit; where there can be no such code of these vectors, why."""
    if code.method == VECTORS:
        return {"accuracy": features.accuracy(lambda vectors: vectors, dataset, plan.classified, seed)}
    encoder = code.encoder(seed)
    try:
        encoder.fit(dataset.learn)
    except (ParameterError, TooFewVectorsError) as error:
        return {"impossible": str(error)}
    codes = encoder.encode(dataset.base)
    values: dict[str, Any] = {
        "code bits": encoder.layout.code_bits,
        "error": round(relative_error(dataset.base, encoder.decode(codes)), _DIGITS),
        "history": [round(error, _DIGITS) for error in getattr(encoder, "history_", [])],
    }
    for distance in encoder.distances(dataset.metric):
        values[distance] = _curve(by_distance(encoder, codes, dataset, distance), plan)
    values["subset"] = _by_subset(code, encoder, codes, dataset, plan)
    if code.budget == plan.budget:
        values.update(_as_features(code, encoder, dataset, plan, seed))
    return values


def _curve(places: Places, plan: Plan) -> dict[str, Any]:
    """recall@R at some R, and the area under it: its mean over all R up to the longest answer, and up to 100."""
    curve = places.curve(plan.answers)
    told = [round(float(curve[rank - 1]), _DIGITS) for rank in plan.ranks]
    return {"recall": told, "area": _area(curve), "area to 100": _area(curve[:100])}


def _area(curve: NDArray[np.float64]) -> float:
    return round(float(curve.mean()), _DIGITS)


def _by_subset(code: Code, encoder: Encoder, codes: Codes, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """What tables of some bits find; JSON wants the bits as text."""
    if code.is_binary:
        sizes = plan.table_bits if code.budget == plan.budget else (plan.main_bits,)
    else:
        sizes = tuple(bits for bits in plan.table_bits if bits == code.field_bits)
    out: dict[str, Any] = {}
    for bits in sizes:
        found = by_score(encoder, codes, dataset, bits, plan.answers)
        told = {"read": round(found.read, _DIGITS), "short": round(found.short, _DIGITS)}
        out[str(bits)] = {**_curve(found.places, plan), **told}
    return out


def _as_features(code: Code, encoder: Encoder, dataset: Dataset, plan: Plan, seed: int) -> dict[str, Any]:
    def indices(vectors: Vectors) -> NDArray[Any]:
        return encoder.layout.unpack(encoder.encode(vectors))[:, encoder.layout.scalars :]

    clusters = code.method == CK_MEANS
    out = {"correlation": round(features.correlation(encoder.embed, dataset, seed), _DIGITS)}
    if clusters:
        out["correlation of indices"] = round(features.correlation(indices, dataset, seed), _DIGITS)
    sized = code.is_binary or code.field_bits in plan.table_bits
    if dataset.labels is not None and code.method in AS_FEATURES and sized:
        out["accuracy"] = features.accuracy(encoder.embed, dataset, plan.classified, seed)
        if clusters:
            out["accuracy of indices"] = features.accuracy(indices, dataset, plan.classified, seed)
    return out
