def check(*_): raise NotImplementedError
