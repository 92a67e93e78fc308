"""All dependency trees on a GPU, by the matrix-tree theorem: log Z, marginals and their gradients from one factorisation.

With the weights w(h, m) of arcs, divided by the largest of each word, and the sums of their columns on the diagonal, Z is the
determinant of L = diag(Σ_h w(h, m)) − w over the words (Koo et al. 2007). With one root arc, the first row is that of the root instead,
and the diagonal leaves the root out. By G = L⁻¹, where a term of a replaced row is left out:

    p(h → m) = w(h, m) (G(m, m) − G(m, h))        dG = −G dL G

The digits that are lost are known afterwards. With the residual R = L G − I, and the rounding of L G, G is wrong by at most |G| |R|, so a
bound on the errors of all marginals is known. Sentences with a larger bound than MOST are computed on the CPU, without any subtraction
(`arborescences`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phrasemodels.structs.dispatch import transformed
from phrasemodels.structs.kernels import Kernel, Scores, allowed, column
from phrasemodels.structs.kernels.arborescences import Arborescences

MOST = 1e-9  # error of a marginal and of log Z
ROUNDING = 2.3e-16
LEAST = -700.0  # logarithm of a weight; smaller ones are 0
DIGITS = 36.0  # so much smaller sums change nothing


class Factorised(NamedTuple):
    """Weights (B, n+1, n), log Z (B,), the inverse G (B, n, n), and whether their digits are known (B,)."""

    weights: Tensor
    log_z: Tensor
    inverse: Tensor
    known: Tensor


class Determinants(Kernel):
    """Serves scores on a GPU, all float32 or all float64 and not empty; see `Kernel`."""

    waits = True
    otherwise = Arborescences()

    def supports(self, structure: Any, scores: Scores) -> bool:
        return (
            not torch.compiler.is_compiling()
            and scores[0].is_cuda
            and scores[0].dtype in (torch.float32, torch.float64)
            and scores[0].numel() > 0
            and scores[0].shape[1] > 1
            and allowed("numba", "triton")
            and not transformed()
        )

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        arcs, wanted = scores[0].detach(), scale is not None and bool(which)
        found = factorised(structure, arcs, lengths)
        log_z = found.log_z
        p = (
            _with_root(found.weights * _differences(found.inverse, structure.one_root)).clamp_(min=0)
            if wanted
            else None
        )
        if not found.known.all():
            lost = ~found.known
            given = (arcs[lost].cpu(),), lengths[lost].cpu()
            other_z, other_p = self.otherwise.marginals(structure, *given, 1.0 if wanted else None, which, each)
            log_z[lost] = other_z.to(log_z)
            if p is not None:
                p[lost] = other_p[0].to(p)
        if p is not None and isinstance(scale, Tensor):
            p = p * column(scale.to(p), p)
        return log_z.to(arcs.dtype), () if p is None else (p.to(arcs.dtype),)

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        arcs, one_root = scores[0].detach(), structure.one_root
        w, _, G, known = factorised(structure, arcs, lengths)
        g = grads[0].double()[:, :, 1:]
        g = g - g.gather(1, w.argmax(1, keepdim=True))  # changes nothing but rounding, as each word has one head
        moved = torch.where(w > 0, w * g, 0)
        of_g = -G @ _laplacian(moved, one_root) @ G
        out = _with_root(moved * _differences(G, one_root) + w * _differences(of_g, one_root))
        if not known.all():
            lost = ~known
            given = (arcs[lost].cpu(),), lengths[lost].cpu(), [grads[0][lost].cpu()]
            out[lost] = self.otherwise.hessian_vector(structure, *given)[0].to(out)
        return (out.to(arcs.dtype),)


def factorised(structure: Any, arcs: Tensor, lengths: Tensor) -> Factorised:
    """Return the sums over all trees of arcs (B, n+1, n+1), in float64."""
    real = torch.arange(1, arcs.shape[1], device=arcs.device) <= lengths  # (B, n)
    scores = torch.where(structure.valid((arcs,), lengths)[0], arcs, -torch.inf)[:, :, 1:].double()
    tops = torch.where(real, scores.amax(1), 0)
    relative, one = scores - tops[:, None], torch.eye(real.shape[1], dtype=scores.dtype, device=scores.device)
    w = torch.where(relative < LEAST, 0, relative.exp())
    padding = (~real).double()
    padding[:, 0] = (lengths[:, 0] == 0).double()
    L = _laplacian(w, structure.one_root) + torch.diag_embed(padding)
    factors, pivots, _ = torch.linalg.lu_factor_ex(L)
    G = torch.linalg.lu_solve(factors, pivots, one.expand_as(L))
    log_det = factors.diagonal(dim1=1, dim2=2).abs().log().sum(1)
    residual = (L @ G - one).abs() + ROUNDING * (L.abs() @ G.abs())
    error = G.abs() @ residual
    of_p = w[:, 1:] * (error.mT + error.diagonal(dim1=1, dim2=2)[:, None])
    # trees with a weight that was left out are at most so many
    left_out = LEAST + torch.where(real, w.sum(1), 1).log().sum(1)
    known = (
        (of_p.amax((1, 2)) < MOST) & (residual.diagonal(dim1=1, dim2=2).sum(1) < MOST) & (log_det > left_out + DIGITS)
    )
    return Factorised(w, log_det + tops.sum(1), G, known)


def _laplacian(w: Tensor, one_root: bool) -> Tensor:
    """Return L (B, n, n) of weights (B, n+1, n), whose row 0 is the root's. It is linear in them."""
    if not one_root:
        return torch.diag_embed(w.sum(1)) - w[:, 1:]
    words = torch.diag_embed(w[:, 1:].sum(1)) - w[:, 1:]
    return torch.cat([w[:, :1], words[:, 1:]], 1)


def _differences(G: Tensor, one_root: bool) -> Tensor:
    """Return what each weight (B, n+1, n) is multiplied with for its marginal."""
    own = G.diagonal(dim1=1, dim2=2)
    if not one_root:
        return own[:, None] - torch.nn.functional.pad(G.mT, (0, 0, 1, 0))
    others = own.clone()
    others[:, 0] = 0
    between = others[:, None] - torch.nn.functional.pad(G.mT[:, 1:], (0, 0, 1, 0))
    return torch.cat([G.mT[:, :1], between], 1)


def _with_root(x: Tensor) -> Tensor:
    """Return numbers of arcs (B, n+1, n) with a column of zeros for the root, which has no head."""
    return torch.nn.functional.pad(x, (1, 0))
