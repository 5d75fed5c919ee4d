"""The success bodies of the routes: the schemas of OpenAPI. The tests hold every answer to them."""

from odometer_accountant.service.responses.charges import (
    ChargeReply,
    ChargesReply,
    CheckReply,
    LeftReply,
    LossReply,
    Receipt,
)
from odometer_accountant.service.responses.datasets import (
    BudgetsReply,
    BudgetState,
    DatasetReply,
    DatasetsReply,
)
from odometer_accountant.service.responses.history import HistoryReply, SpendReply
from odometer_accountant.service.responses.holds import HoldReceipt, HoldsReply, SettlementReply
from odometer_accountant.service.responses.ledger import DerivedReceipt, LedgerReply, LineageReply
from odometer_accountant.service.responses.mechanisms import MechanismsReply
from odometer_accountant.service.responses.principals import (
    KeysReply,
    MeReply,
    NewKeyReply,
    PrincipalReply,
    PrincipalsReply,
)
from odometer_accountant.service.responses.readings import ConvertReply, OdometerReply, ScopesReply
from odometer_accountant.service.responses.sessions import AnswerReply, SessionReply, SessionsReply

__all__ = [
    "AnswerReply",
    "BudgetState",
    "BudgetsReply",
    "ChargeReply",
    "ChargesReply",
    "CheckReply",
    "ConvertReply",
    "DatasetReply",
    "DatasetsReply",
    "DerivedReceipt",
    "HistoryReply",
    "HoldReceipt",
    "HoldsReply",
    "KeysReply",
    "LedgerReply",
    "LeftReply",
    "LineageReply",
    "LossReply",
    "MeReply",
    "MechanismsReply",
    "NewKeyReply",
    "OdometerReply",
    "PrincipalReply",
    "PrincipalsReply",
    "Receipt",
    "ScopesReply",
    "SessionReply",
    "SessionsReply",
    "SettlementReply",
    "SpendReply",
]
