from holdfast_log.broker.network.connection import ReplySlot, ServerConnection

def dispatch(
    table: tuple[object, ...], connection: ServerConnection, frame: memoryview, reply: ReplySlot, /
) -> object: ...
