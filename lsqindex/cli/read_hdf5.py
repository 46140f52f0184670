"""HDF5, as ann-benchmarks publishes its sets: the vectors are the dataset "train", queries "test"."""

from __future__ import annotations

from typing import Any

from .source import InputError, MissingPackageError, Source, Wanted, choose, sliced


def open_hdf5(name: str, wanted: Wanted, stream: Any) -> Source:
    """A dataset (n, dim), read by slices; ids are another dataset."""
    del stream
    wanted.only(name, "dataset", "id_column")
    try:
        import h5py
    except ImportError:
        raise MissingPackageError(f"{name}: HDF5 needs h5py: pip install 'lsqindex[formats]'") from None
    try:
        file = h5py.File(name, "r")
    except OSError as error:
        raise InputError(f"{name}: is not a valid HDF5 file ({error})") from error
    try:
        shapes: dict[str, int] = {}
        file.visititems(lambda key, item: shapes.update({key: item.ndim}) if isinstance(item, h5py.Dataset) else None)
        fitting = ["train"] if "train" in shapes else [key for key, ndim in shapes.items() if ndim == 2]
        rows = file[choose(name, "dataset", wanted.dataset, shapes, fitting)]
        ids = None
        if wanted.id_column is not None:
            ids = file[choose(name, "dataset", wanted.id_column, shapes, [])]
            ids = ids.asstr()[()].tolist() if h5py.check_string_dtype(ids.dtype) else ids[()]
        return sliced(name, rows, ids, file.close)
    except BaseException:
        file.close()
        raise
