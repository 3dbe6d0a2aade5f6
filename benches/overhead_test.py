#!/usr/bin/env python3
"""Tests of the statistics of the overhead benchmark: python3 -m unittest discover -s benches -p '*_test.py'"""
import unittest

from overhead_loads import LOADS, Values, added_us, cpu_us, ratios


class Statistics(unittest.TestCase):
    def test_values_are_median_and_extremes(self):
        self.assertEqual(Values.of([3, 1, 2]), Values(2, 1, 3))
        self.assertEqual(Values.of([4, 1]), Values(2.5, 1, 4))

    def test_a_figure_that_one_round_lacks_has_no_values(self):
        self.assertIsNone(Values.of([1, None]))
        self.assertIsNone(Values.of([]))

    def test_ratios_belong_to_the_same_round(self):
        self.assertEqual(ratios([2, 6], [1, 4]), [2, 1.5])
        self.assertIsNone(ratios([2, 6], [1, 0]))
        self.assertIsNone(ratios([2, 6], [1, -3]))

    def test_cpu_is_per_chunk_or_request(self):
        report = {"chunks": 200, "requests": 2, "cpu": {"scheduled_s": 0.004, "user_s": 0.001, "system_s": 0.001}}
        self.assertEqual(cpu_us(report, "paced"), 20)
        self.assertEqual(cpu_us(report, "json"), 2000)
        self.assertEqual(cpu_us(report, "json", "ticks"), 1000)
        self.assertIsNone(cpu_us(report | {"requests": 0}, "json"))

    def test_added_time_is_a_difference_of_percentiles(self):
        through, direct = {"delay": {"p50_us": 150.0}}, {"delay": {"p50_us": 100.0}}
        self.assertEqual(added_us(through, direct, "delay", "p50_us"), 50)
        self.assertIsNone(added_us(through, {"delay": None}, "delay", "p50_us"))

    def test_a_quick_load_has_short_streams(self):
        for name, load in LOADS.items():
            values = dict(zip(load.arguments(True)[::2], load.arguments(True)[1::2]))
            self.assertLess(values["--warm-up"] + values["--seconds"], 2, name)


if __name__ == "__main__":
    unittest.main()
