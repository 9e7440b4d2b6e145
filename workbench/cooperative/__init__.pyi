from .cost_model import (
    PeCounts as PeCounts,
    StageSeconds as StageSeconds,
    StepSeconds as StepSeconds,
    step_seconds as step_seconds,
)
from .sampler import CooperativeSampler as CooperativeSampler, exchangers as exchangers
from .sampling import (
    batches as batches,
    independent_batches as independent_batches,
    reach_counts as reach_counts,
    sample_owned as sample_owned,
)
from .step import cooperative_logits as cooperative_logits, train_step as train_step
from .work import (
    CooperativeWork as CooperativeWork,
    Work as Work,
    cooperative_work as cooperative_work,
    expected_inputs as expected_inputs,
    marginal_inputs as marginal_inputs,
    measure_work as measure_work,
    work_curve as work_curve,
)
