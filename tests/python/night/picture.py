"""Pictures of dashboards (to be written)."""
def draw_all(*_): pass
