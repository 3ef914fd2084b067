# Looks names up with the resolver of the system's libc, so many times a second, until its standard
# input ends. Prints a line each half second, and the counts at the end. A look-up counts as slow
# after a second in which this process ran, because a busy machine delays all look-ups.
import json, socket, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

rate, names = float(sys.argv[1]), [n.split("=") for n in sys.argv[2:]]
lock, stop = threading.Lock(), threading.Event()
asked, slowest, slow, faults = 0, 0.0, 0, []
ticks = 0  # of 10 ms, fewer if the process does not run


def tick():
    global ticks
    while True:
        time.sleep(0.01)
        ticks += 1


def look(name, want):
    global asked, slowest, slow
    began, from_tick = time.monotonic(), ticks
    try:
        found = {a[4][0] for a in socket.getaddrinfo(name, None, socket.AF_UNSPEC, socket.SOCK_STREAM)}
        fault = None if want in found else "%s is %s" % (name, sorted(found))
    except OSError as e:
        fault = "%s: %s" % (name, e)
    took = time.monotonic() - began
    with lock:
        asked, slowest, slow = asked + 1, max(slowest, took), slow + (ticks - from_tick > 100)
        if fault:
            faults.append("%s after %.3f s at %.3f" % (fault, took, time.time()))


threading.Thread(target=tick, daemon=True).start()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
with ThreadPoolExecutor(400) as pool:
    due, i = time.monotonic(), 0
    while not stop.is_set():
        pool.submit(look, *names[i % len(names)])
        due, i = due + 1 / rate, i + 1
        if i % (rate // 2) == 0:
            print("going on", flush=True)
        time.sleep(max(0, due - time.monotonic()))
print(json.dumps({"asked": asked, "failed": len(faults), "slowest": slowest, "overASecond": slow, "faults": faults[:300]}))
