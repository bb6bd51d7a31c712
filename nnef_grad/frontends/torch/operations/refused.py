"""Operations that no graph can have, and what to do instead."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from nnef_grad.frontends.torch.call import Call, aten

_OUTSIDE = "NNEF does not have it: compute it outside, and make it an input"
_NO_FORMULA = (
    "NNEF has none, nor a formula for it; compute it with other functions of real numbers,"
    " or outside the module"
)

_REFUSED: dict[str, tuple[str, ...]] = {
    "it is a truth value of Python that depends on data: use (x == y).all()": ("equal",),
    "its extent depends on the values of tensors: for counts of known classes sum "
    "one_hot(x, classes)": ("bincount", "_unique2", "unique_consecutive", "unique_dim"),
    "the number of repeats must not depend on the inputs": ("repeat_interleave.Tensor",),
    "reducing is not supported: use scatter_add or index_add": (
        "scatter.reduce", "scatter.value_reduce", "index_reduce",
    ),
    "max_norm is not supported: normalize the rows, and give them to embedding": (
        "embedding_renorm", "embedding_renorm_",
    ),
    "sparse tensors are not read: use dense ones": (
        "_sparse_coo_tensor_with_dims_and_tensors", "_to_sparse", "_sparse_mm",
    ),
    "a graph has no bits": ("view.dtype", "view_copy.dtype"),
    "its windows are random: draw where they are outside, and use slices": (
        "fractional_max_pool2d", "fractional_max_pool3d",
    ),
    "its distribution has no formula: make what is drawn an input": (
        "poisson", "binomial", "_standard_gamma", "_sample_dirichlet",
    ),
    "use torch.randint": ("random",),
    f"a Bessel function: {_NO_FORMULA}": ("i0", "special_i0"),
    f"the scaled error function: {_NO_FORMULA}": ("special_erfcx",),
    f"the inverse of the normal distribution: {_NO_FORMULA}": ("special_ndtri",),
    f"the gamma function: {_NO_FORMULA}": (
        "digamma", "lgamma", "mvlgamma", "polygamma",
    ),
    _OUTSIDE: (
        "svd", "linalg_svd", "linalg_eigh", "linalg_eig", "triangular_solve",
        "linalg_lstsq", "_linalg_svd", "_linalg_eigh",
        "_linalg_eigvals", "linalg_eigvals", "linalg_eigvalsh", "linalg_svdvals",
        "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "_lu_with_info",
        "linalg_matrix_rank", "linalg_cond", "linalg_ldl_factor", "linalg_ldl_factor_ex",
        "lu_solve", "linalg_lu_solve", "geqrf", "linalg_householder_product", "ormqr",
    ),
}  # fmt: skip


def _refuse(message: str, call: Call, *_: object) -> NoReturn:
    call.refuse(message)


for _message, _names in _REFUSED.items():
    aten(*_names)(partial(_refuse, _message))
