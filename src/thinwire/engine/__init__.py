"""Many tensors over many steps. The path of one gradient, from DDP's hook to the update:

1. `frontends/ddp.py`: DDP's hook hands a full bucket to the engine's worker thread.
2. `engine/backward.py`: `BackwardPass` begins a step with the first bucket, adds each as it comes
   (checks it for NaN, holds back what must wait), and finishes with the last.
3. `engine/step.py`: `StepRunner` takes one unit, flat or over nodes, and counts what it cost.
4. `pipeline.py`: accumulate, select, exchange, mean, settle. It alone knows this order.

`Synchronizer.average_all` goes the same way from 2 on, with all gradients in one `add`. Beside the
path lie `roster` (which units there are, assembled from gradients), `overlap` (dense allreduces
under way together), `thread` (the worker), `finite` (NaN and Inf) and `checkpoint`.
"""
