"""The description of the API as the source of requests, for some seconds; ``make fuzz`` goes on for longer."""

from fuzzing import KEY, VARIABLES, Client, fuzz


def test_nothing_that_is_sent_does_harm(serve):
    server = serve(**VARIABLES)
    server.wait_ready()
    client = Client(server.url, KEY)
    report, well = fuzz(client, 1, "--max-time", 12, "--phases", "fuzzing,stateful")
    assert well, report
    client.check_unharmed()
    code, output = server.stop()
    assert code == 0
    assert "Traceback" not in output
