"""The public names of the package, each with the module that it comes from."""

from nnef_grad import interop as interop
from nnef_grad import training as training
from nnef_grad.autodiff.backward import Backward as Backward
from nnef_grad.autodiff.backward import summary as summary
from nnef_grad.autodiff.compositions import gradient_penalty as gradient_penalty
from nnef_grad.autodiff.compositions import hessian as hessian
from nnef_grad.autodiff.compositions import hvp as hvp
from nnef_grad.autodiff.compositions import jacobian as jacobian
from nnef_grad.autodiff.compositions import jvp as jvp
from nnef_grad.autodiff.compositions import saliency as saliency
from nnef_grad.autodiff.differentiate import differentiate as differentiate
from nnef_grad.autodiff.laplacians import divergence as divergence
from nnef_grad.autodiff.laplacians import laplacian as laplacian
from nnef_grad.autodiff.recompute import Recomputation as Recomputation
from nnef_grad.autodiff.recompute import recompute as recompute
from nnef_grad.autodiff.rules import Rules as Rules
from nnef_grad.autodiff.split import Split as Split
from nnef_grad.autodiff.split import split as split
from nnef_grad.autodiff.statistics import OperationCost as OperationCost
from nnef_grad.autodiff.statistics import SplitCosts as SplitCosts
from nnef_grad.autodiff.statistics import Statistics as Statistics
from nnef_grad.autodiff.statistics import split_costs as split_costs
from nnef_grad.autodiff.statistics import statistics as statistics
from nnef_grad.base.errors import InvalidGraphError as InvalidGraphError
from nnef_grad.base.errors import NnefGradError as NnefGradError
from nnef_grad.base.errors import NnefSyntaxError as NnefSyntaxError
from nnef_grad.base.errors import NoDerivativeError as NoDerivativeError
from nnef_grad.base.errors import Problem as Problem
from nnef_grad.base.errors import UnsupportedError as UnsupportedError
from nnef_grad.base.errors import UsageError as UsageError
from nnef_grad.base.source import Source as Source
from nnef_grad.base.source import Span as Span
from nnef_grad.graph.ir import Graph as Graph
from nnef_grad.graph.ir import Operation as Operation
from nnef_grad.graph.ir import Tensor as Tensor
from nnef_grad.interpreter import evaluate as evaluate
from nnef_grad.interpreter.gradcheck import Checked as Checked
from nnef_grad.interpreter.gradcheck import CheckedGradient as CheckedGradient
from nnef_grad.interpreter.gradcheck import check as check
from nnef_grad.model import dumps as dumps
from nnef_grad.model import load as load
from nnef_grad.model import load_rules as load_rules
from nnef_grad.model import loads as loads
from nnef_grad.model import loads_rules as loads_rules
from nnef_grad.model import save as save
from nnef_grad.reports import report as report
from nnef_grad.storage.data import VariableData as VariableData
from nnef_grad.storage.data import load_data as load_data
from nnef_grad.targets import Lowered as Lowered
from nnef_grad.targets import lower as lower
from nnef_grad.training.forms import Step as Step
from nnef_grad.training.step import training_step as training_step

__version__: str
__all__: list[str]
