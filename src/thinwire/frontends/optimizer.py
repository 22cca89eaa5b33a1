"""An optimiser that takes part in the exchange: `optim`.

Adam is not linear in the gradient, so that it must not come after a selection that sends sums of
many gradients at once. `optim` moves its moments before the selection (`feedback/adam.py`); what
DDP's hook then leaves in `p.grad` is a step, and `Optimizer.step` takes it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from glob import escape
from typing import Any

import torch
from torch import Tensor

from thinwire import cookbook
from thinwire.auto import Auto
from thinwire.by_name import ByName
from thinwire.comm import node_size_of
from thinwire.errors import RecipeError
from thinwire.feedback import Adam, Momentum, Residual
from thinwire.frontends.ddp import compress, ddp_of
from thinwire.frontends.handle import Handle, named
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything
from thinwire.types import Feedback

REFRESH = 10  # steps; of every element something is sent in each


class Optimizer(torch.optim.Optimizer):
    """What `optim` gives back, in place of the optimiser that it was given.

    Both have the same `param_groups`, so that schedulers may hold either. Tensors that the recipe
    sends whole are still stepped by the given one. `handle` is that of `compress`.
    """

    def __init__(
        self, given: torch.optim.Optimizer, handle: Handle, taken: Mapping[Tensor, Feedback]
    ) -> None:
        super().__init__(given.param_groups, given.defaults)
        self.given, self.handle, self._taken = given, handle, taken

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take the steps that the backward pass left in the gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        others = False
        own: list[Tensor] = []
        for group in self.param_groups:
            ready = [p for p in group["params"] if p.grad is not None]
            mine = [p for p in ready if p in self._taken and not p.grad.is_sparse]
            others |= len(mine) < len(ready)
            with torch.no_grad():
                self._step_group(mine, group)
            own += mine
        if others:
            self._step_others(own)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The given optimiser's, with all that this rank's exchange must remember: of each rank."""
        return self.given.state_dict() | {"thinwire": self.handle.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a saved state, at the same number of ranks; else see `handle`."""
        plain = {key: value for key, value in state_dict.items() if key != "thinwire"}
        self.given.load_state_dict(plain)
        self.param_groups = self.given.param_groups
        if "thinwire" in state_dict:
            self.handle.load_state_dict(state_dict["thinwire"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once DDP knows its parameters, as DDP itself would not hear of them."""
        if hasattr(self, "given"):
            raise RecipeError("parameters cannot be added after optim(): make the optimiser anew")
        super().add_param_group(param_group)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """p ← p - lr·(step + weight decay): AdamW's, or what SGD's momentum makes of it."""
        if not parameters:
            return
        steps, lr = [p.grad for p in parameters if p.grad is not None], group["lr"]
        if decay := group.get("weight_decay", 0):
            if isinstance(self._taken[parameters[0]], Momentum):
                decays = self._decays(parameters, group["momentum"], decay)
                steps = list(torch._foreach_add(steps, decays))
            else:
                torch._foreach_mul_(parameters, 1 - lr * decay)
        torch._foreach_add_(parameters, torch._foreach_mul(steps, -lr))

    def _decays(self, parameters: list[Tensor], momentum: float, decay: float) -> list[Tensor]:
        """The momentum of the weights' decay, which is the same on all ranks and is not sent.

        SGD adds it to the gradient; momentum is linear, so that it may be added to the step.
        """
        kept = [self.given.state[p] for p in parameters]
        for state, p in zip(kept, parameters, strict=True):
            state.setdefault("decay", torch.zeros_like(p))
        decays: list[Tensor] = [state["decay"] for state in kept]
        torch._foreach_mul_(decays, momentum)
        torch._foreach_add_(decays, parameters, alpha=decay)
        return decays

    def _step_others(self, own: list[Tensor]) -> None:
        """The given optimiser's turn, which does not see what was already stepped."""
        hidden = [p.grad for p in own]
        for p in own:
            p.grad = None
        try:
            self.given.step()
        finally:
            for p, grad in zip(own, hidden, strict=True):
                p.grad = grad


def optim(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    refresh: int | None = None,
    **settings: Any,
) -> Optimizer:
    """Exchange the gradients of a DDP model by a recipe that the optimiser takes part in.

        optimizer = thinwire.optim(torch.optim.AdamW(ddp.parameters(), lr), ddp, "topk(0.01)")

    The training loop stays as it is. Where the recipe keeps a residual, the moments of `Adam` and
    `AdamW`, and the momentum of `SGD`, move before the selection, by the feedbacks `adam` and
    `momentum`; other tensors are stepped by the optimiser as ever.

    `refresh` is that of the feedback `adam`: every so many steps the gradients themselves are
    averaged, in 16 bits, for Adam's second moment. By default every 10 where the recipe sends
    something of every element, as `signsgd` does, and never behind a selection, beside which it
    would be most of what is sent. `settings` are those of `compress`. After `backward()` the
    gradients of such tensors are steps: do not clip them.
    """
    ddp = ddp_of(model, "optim")
    pipeline = cookbook.recipe(recipe)
    if isinstance(pipeline, Auto):
        raise RecipeError("a recipe that chooses may go back to gradients: name one for optim()")
    workers = ddp.process_group.size() // node_size_of(settings.get("node_size", 1))
    rules: list[tuple[str, Pipeline]] = []
    taken: dict[Tensor, Feedback] = {}
    feedbacks = _feedbacks(optimizer, max(1, workers))
    for name, parameter in named(ddp).items():
        own = pipeline.of_tensor(name)
        feedback = feedbacks.get(parameter)
        if feedback is not None and isinstance(own.feedback, Residual | Momentum | Adam):
            taken[parameter] = _in_place_of(own, feedback, refresh)
            own = dataclasses.replace(own, feedback=taken[parameter])
        rules.append((escape(name), own))
    alike = all(own == rules[0][1] for _, own in rules)
    handle = compress(model, rules[0][1] if alike else ByName.of(rules), **settings)
    return Optimizer(optimizer, handle, taken)


def _in_place_of(recipe: Pipeline, feedback: Feedback, refresh: int | None) -> Feedback:
    """The optimiser's moments; what the recipe's own feedback says beside them stays."""
    own = recipe.feedback
    if isinstance(own, Momentum) and isinstance(feedback, Momentum):
        return dataclasses.replace(own, factor=feedback.factor)
    if not isinstance(feedback, Adam):
        return feedback
    if refresh is None and isinstance(own, Adam):
        refresh = own.refresh
    if refresh is None:
        refresh = REFRESH if isinstance(recipe.sparsifier, Everything) else 0
    return dataclasses.replace(feedback, refresh=refresh)


def _feedbacks(optimizer: torch.optim.Optimizer, workers: int) -> dict[Tensor, Feedback]:
    """What takes the place of the optimiser's moments, for the parameters of each group."""
    feedbacks: dict[Tensor, Feedback] = {}
    for group in optimizer.param_groups:
        feedback = _feedback(optimizer, group, workers)
        if feedback is not None:
            feedbacks |= dict.fromkeys(group["params"], feedback)
    return feedbacks


def _feedback(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any], workers: int
) -> Feedback | None:
    """The feedback of one group; None where the optimiser is linear in the gradient."""
    refused = [key for key in ("amsgrad", "maximize", "nesterov", "dampening") if group.get(key)]
    kind = type(optimizer).__name__
    if refused:
        raise RecipeError(f"{kind} with {refused[0]}={group[refused[0]]} cannot take part")
    if type(optimizer) is torch.optim.SGD:
        return Momentum(group["momentum"]) if group["momentum"] else None
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        raise RecipeError(f"optim() knows Adam, AdamW and SGD, not {kind}: use compress() with it")
    coupled = group["weight_decay"] and not group.get("decoupled_weight_decay", True)
    if coupled:
        raise RecipeError(
            f"Adam with weight_decay={group['weight_decay']} adds it to gradients that are no "
            "longer there: use AdamW"
        )
    beta1, beta2 = group["betas"]
    return Adam(float(beta1), float(beta2), group["eps"], workers)
