"""PyTorch's own samples of its operators (OpInfo), through both entries, against float64."""
