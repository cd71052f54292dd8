"""What runs beside the calls: adopting the cluster's calibration, and measuring it again by the week."""
