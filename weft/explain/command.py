def explain_command():
    pass
