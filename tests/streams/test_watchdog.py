import signal
import subprocess
import sys
import threading
import time

from fluvial.streams.watchdog import Sign, Watchdog


class Fatal:
    def __init__(self) -> None:
        self.reason = ""
        self.said = threading.Event()

    def __call__(self, reason: str) -> None:
        self.reason = reason
        self.said.set()


def test_a_standstill_ends_the_worker_with_its_name_and_the_stacks() -> None:
    fatal = Fatal()
    Watchdog({"the event loop": Sign(lambda: 1.0, 0.05)}, every=0.01, fatal=fatal).start()
    assert fatal.said.wait(5)
    assert fatal.reason == "the event loop made no progress for 0.05 s"


def test_the_reason_says_what_was_being_done() -> None:
    fatal = Fatal()
    Watchdog({"the hop land": Sign(lambda: 1.0, 0.02, lambda: "sleeping")}, every=0.01, fatal=fatal).start()
    assert fatal.said.wait(5)
    assert fatal.reason == "the hop land made no progress for 0.02 s while sleeping"


def test_life_is_left_alone() -> None:
    fatal = Fatal()
    watchdog = Watchdog({"the event loop": Sign(time.monotonic, 0.02)}, every=0.005, fatal=fatal)
    watchdog.start()
    assert not fatal.said.wait(0.2)
    watchdog.stop()
    watchdog.join(5)
    assert not watchdog.is_alive()


def test_a_pause_of_the_whole_process_is_not_punished() -> None:
    worker = """if True:
        import time
        from fluvial.streams.watchdog import Sign, Watchdog
        Watchdog({"the event loop": Sign(time.monotonic, 0.3)}, every=0.05).start()
        print("alive", flush=True)
        time.sleep(2.0)
    """
    with subprocess.Popen([sys.executable, "-c", worker], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        process.send_signal(signal.SIGCONT)
        assert process.wait(10) == 0


def test_a_stuck_worker_leaves_with_70() -> None:
    worker = """if True:
        import time
        from fluvial.streams.watchdog import Sign, Watchdog
        Watchdog({"the event loop": Sign(lambda: 1.0, 0.2)}, every=0.05).start()
        time.sleep(20)
    """
    ended = subprocess.run([sys.executable, "-c", worker], stderr=subprocess.PIPE, text=True, timeout=10, check=False)
    assert ended.returncode == 70
    assert ended.stderr.splitlines()[-1] == "fluvial: the event loop made no progress for 0.2 s"
    assert 'File "<string>"' in ended.stderr
