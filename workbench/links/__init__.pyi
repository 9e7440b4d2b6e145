from .edge_batch import EdgeBatch as EdgeBatch
from .knowledge_graph import KnowledgeGraph as KnowledgeGraph
from .negatives import Negatives as Negatives, false_negatives as false_negatives, sample_negatives as sample_negatives
from .triple_file import read_knowledge_graph as read_knowledge_graph
