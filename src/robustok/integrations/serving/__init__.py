"""What servers share that guard prompts of token ids: policy and counters, request bodies."""

from robustok.integrations.serving.prompts import POLICIES as POLICIES
from robustok.integrations.serving.prompts import Counters as Counters
from robustok.integrations.serving.prompts import PromptGuard as PromptGuard
from robustok.integrations.serving.prompts import Refused as Refused
