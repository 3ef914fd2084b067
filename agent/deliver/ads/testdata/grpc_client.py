"""Opens a channel to each target that is given, by xDS, and keeps them until standard input ends."""
import sys

import grpc

channels = [grpc.insecure_channel(target) for target in sys.argv[1:]]
for channel in channels:
    channel.subscribe(lambda state: None, try_to_connect=True)
print(grpc.__version__, flush=True)
sys.stdin.read()
